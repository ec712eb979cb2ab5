"""Rollout servers beside a built run: what each says of itself during the rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor.trace.model import RolloutServer
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, run
from tests.unit.findings.rules.saying import step_starts, with_knobs

VLLM = ("vllm", "serve", "m")
UNITS = {"server.kv_cache": "%", "server.preemptions": "1/s", "server.generated_tokens": "1/s"}
_AFTER_S = 60.0  # the server outlives the run


def beside_servers(phases: Mapping[str, float] = HEALTHY, **facts: Any) -> TraceBuilder:
    """Ranks whose rollouts a server does."""
    return run(phases, knobs=with_knobs(vllm__mode="server"), **facts)


def served(
    build: TraceBuilder,
    *,
    pid: int | None = 700,
    command: Sequence[str] = VLLM,
    for_s: float = HEALTHY["rollout"],
    after_s: float = 0.0,
    **values: float,
) -> TraceBuilder:
    """A server that says these values for `for_s` of each rollout, and 0 until the next one.

    Without a pid it is one that the run asked: nobody knows its command.
    """
    begin_s = HEALTHY["dataload"] + after_s
    times = [t for start in step_starts() for t in (start + begin_s, start + begin_s + for_s)]
    if pid is not None:
        build.servers.append(RolloutServer("host-a", pid, tuple(command)))
    for short, value in values.items():
        name = f"server.{short}"
        samples = [number for _ in step_starts() for number in (value, 0.0)]
        moments, numbers = [0.0, *times, times[-1] + _AFTER_S], [0.0, *samples, 0.0]
        unit = UNITS.get(name, "count")
        build.series(name, unit, moments, numbers, scope="server", pid=pid)
    return build
