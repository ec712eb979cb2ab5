"""Whatever could not be seen, `diagnose` gives a verdict: fields, rows and looks may be missing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view as scenes
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor_probes.evidence import EngineLook, Evidence, Limits, LogTail, OpenSpanSeen
from tests.evidence import FIRST_NS, EvidenceBuilder, collective, frames

REWARD = frames("check /home/me/rewards.py:31", "reward /home/me/train.py:40")
ROLLOUT = frames("_request /usr/lib/python3.11/http/client.py:9", "generate /home/me/train.py:8")
LOADER = "/usr/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


def _stopped(build: EvidenceBuilder) -> None:
    build.elsewhere(1, REWARD).state = "T"
    build.rank(2).limits = (Limits(102), Limits(102, frozen=True, freezer="/x/cgroup.freeze"))


def _dead(build: EvidenceBuilder) -> None:
    build.rank(1).state, build.rank(1).exit_code = "Z", 9
    build.lose(3)
    build.kernel.append((3.0, "Out of memory: Killed process 103 (python)"))
    build.logs.append(LogTail(101, "/home/me/log", 3.0, ("Traceback", "CUDA error: x")))


def _pipe(build: EvidenceBuilder) -> None:
    build.elsewhere(1, REWARD).blocks("pipe-write", "pipe:[7]", 200, peers_known=True)
    build.child(1, "helper", pid=200).blocks("child", "", 201)
    build.child(1, "helper", pid=201, parent=200).works(REWARD)


def _engine(build: EvidenceBuilder) -> None:
    build.elsewhere(1, ROLLOUT).blocks("socket-receive", "1.1.1.1:1 -> 1.1.1.1:2", 300)
    build.child(1, "server", pid=300).stack = frames("run /usr/lib/python3.11/asyncio/runners.py:1")
    build.child(1, "engine", pid=301, parent=300).stack = collective("broadcast")
    values = {"vllm:num_requests_running": 1.0, "vllm:generation_tokens_total": 5.0}
    build.engines = [(EngineLook(300, FIRST_NS + at, "http://x", values),) for at in (0, 10**9)]


def _locks(build: EvidenceBuilder) -> None:
    build.elsewhere(0, REWARD).owns_gil = True
    build.elsewhere(1, REWARD).blocks("file-lock", "/cache/lock", 102)
    build.elsewhere(3, frames(f"_try_get_data {LOADER}:1", "main /home/me/train.py:9"))
    build.child(3, "dataloader", pid=400).state = "T"


def _calls(build: EvidenceBuilder) -> None:
    build.calls(1, "broadcast")
    build.calls(2, "all_reduce", size=9)
    build.calls(3, "all_gather", group="1")
    build.elsewhere(0, collective("recv"))


CASES = (_stopped, _dead, _pipe, _engine, _locks, _calls)


def _evidence(case: Callable[[EvidenceBuilder], None]) -> Evidence:
    build = EvidenceBuilder()
    case(build)
    return replace(build.build(), spans=(OpenSpanSeen(101, 1, "rewards", 3.0),))


def _without(value: Any, chance: random.Random, share: float) -> Any:
    """The same with some of its optional fields and rows left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _field(value, f, chance, share) for f in fields(value)})
    if (
        isinstance(value, tuple)
        and value
        and (is_dataclass(value[0]) or isinstance(value[0], tuple))
    ):
        if not all(is_dataclass(item) or isinstance(item, tuple) for item in value):
            return value
        return tuple(_without(item, chance, share) for item in value if chance.random() > share / 2)
    return value


def _field(value: Any, member: Field[Any], chance: random.Random, share: float) -> Any:
    if member.name != "schema" and chance.random() < share:
        if member.default is not MISSING:
            return member.default
        if member.default_factory is not MISSING:
            return member.default_factory()
    return _without(getattr(value, member.name), chance, share)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.sampled_from((0.01, 0.05, 0.2, 0.5)))
def test_a_verdict_is_given_whatever_is_missing(
    case: Callable[[EvidenceBuilder], None], seed: int, share: float
) -> None:
    stripped = _without(_evidence(case), random.Random(seed), share)
    diagnosis = diagnose(stripped)
    assert diagnosis.verdict.state in ("healthy", "slow", "stuck", "dead")
    assert diagnosis.verdict.summary
    assert 0.0 <= diagnosis.verdict.confidence <= 1.0


def test_a_visit_that_was_interrupted_at_its_beginning_calls_nothing_stuck() -> None:
    evidence = EvidenceBuilder(recorded=False).build()
    outcome = diagnose(replace(evidence, looks=(), stacks=(), limits=(), blocked=())).verdict
    assert (outcome.state, outcome.cause) == ("slow", "unknown")


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True])
def test_half_of_a_thousand_ranks_may_wait_for_the_other_half(elsewhere: bool) -> None:
    """Half a million links: gone through once for each rank they took ten minutes."""
    build = EvidenceBuilder(ranks=1024)
    for rank in range(1, 1024, 2):
        if elsewhere:
            build.elsewhere(rank, REWARD)
        else:
            build.calls(rank, "broadcast")
    view = scenes.build(build.build())
    began = time.process_time()
    graph = waits.build(view)
    graph.cycle()
    built_s = time.process_time() - began
    assert len(graph.links) <= 1024
    began = time.process_time()
    pairs = sorted((link.source.order, end.order) for link in graph.links for end in link.targets)
    assert len(pairs) >= 512 * 512
    assert built_s < 10 * (time.process_time() - began)
