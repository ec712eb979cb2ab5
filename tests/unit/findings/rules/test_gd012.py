from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Fix
from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    BY_ID,
    HEALTHY,
    counted,
    even,
    finding_in,
    missing,
    named,
    rows,
    run,
    with_knobs,
)
from tests.unit.findings.rules.served import UNITS, VLLM, beside_servers, served

KNOBS = with_knobs(vllm__gpu_memory_utilization=0.3)


def engine(
    *,
    full: float = 99.0,
    running: float = 30.0,
    waiting: float = 20.0,
    preemptions: float = 12.0,
    memory_gib: tuple[float, float] | None = (40.0, 48.0),
    phases: dict[str, float] = HEALTHY,
) -> TraceBuilder:
    """An engine of 64 requests per rollout."""
    build = run(phases, knobs=KNOBS, memory_gib=memory_gib)
    return counted(
        build,
        {"engine/kv_cache_peak_pct": full, "engine/running_requests_mean": running,
            "engine/running_requests_peak": 40.0, "engine/waiting_requests_mean": waiting,
            "engine/waiting_requests_peak": 24.0, "engine/preemptions": preemptions},
    )  # fmt: skip


def sick() -> TraceBuilder:
    return engine()


def well() -> TraceBuilder:
    return engine(full=60.0, waiting=0.0, preemptions=0.0)


def starved(
    *,
    full: float = 99.0,
    running: float = 30.0,
    waiting: float = 20.0,
    preemptions: float = 2.0,
    command: tuple[str, ...] = VLLM,
    pid: int | None = 700,
    phases: dict[str, float] = HEALTHY,
) -> TraceBuilder:
    """A server with 50 requests throughout each rollout."""
    return served(
        beside_servers(phases), pid=pid, command=command, requests_running=running,
        requests_waiting=waiting, kv_cache=full, preemptions=preemptions,
    )  # fmt: skip


def one_of_two() -> TraceBuilder:
    return served(starved(), pid=800, requests_running=30.0, requests_waiting=0.0, kv_cache=99.0)


def its_fix(*command: str, version: tuple[str, str] | None = None) -> Fix:
    trace = starved(command=command).build()
    if version is not None:
        trace = replace(trace, run=replace(trace.run, versions=dict([version])))
    ((_, finding),) = run_rules(RunView.of(trace), [BY_ID["GD012"]]).findings
    (fix,) = finding.fixes
    return fix


@pytest.mark.parametrize(
    ("command", "spelling"),
    [
        ("vllm serve m", "for `vllm serve`: --gpu-memory-utilization 0.95"),
        ("vllm serve m --gpu-memory-utilization 0.3",
         "for `vllm serve`: --gpu-memory-utilization 0.9"),
        ("python -m sglang.launch_server --mem-fraction-static 0.6",
         "for SGLang: --mem-fraction-static 0.9"),
        ("swift rollout --model m", "for `swift rollout`: --vllm_gpu_memory_utilization 0.95"),
    ],
)  # fmt: skip
def test_the_fix_is_in_the_servers_own_flag(command: str, spelling: str) -> None:
    fix = its_fix(*command.split())
    assert (fix.spelling, fix.pasted, fix.predicted) == (spelling, True, None)
    assert "Gain not predicted" in fix.risk


@pytest.mark.parametrize(
    ("version", "flag"),
    [("1.10.0", "--gpu_memory_utilization"), ("1.16.0", "--gpu-memory-utilization")],
)
def test_trls_server_takes_its_own_flags_until_it_became_vllms(version: str, flag: str) -> None:
    fix = its_fix("trl", "vllm-serve", "--model", "m", version=("trl", version))
    assert flag in fix.spelling


@pytest.mark.parametrize(("command", "words"), [
    ("vllm serve m --num-gpu-blocks-override 64", "without `--num-gpu-blocks-override`"),
    ("vllm serve m --gpu-memory-utilization 0.95", "add a server"),
    ("sglang serve --model-path m", "(--mem-fraction-static)"),
    ("bash serve.sh", "(for `swift rollout`: --vllm_gpu_memory_utilization)"),
])  # fmt: skip
def test_where_no_share_helps_or_none_is_known_there_is_advice(command: str, words: str) -> None:
    fix = its_fix(*command.split())
    assert not fix.pasted
    assert words in fix.spelling


def test_a_server_without_its_cache_or_its_preemptions_says_less() -> None:
    no_cache = served(beside_servers(), requests_running=30.0, requests_waiting=20.0)
    assert "`server.kv_cache`" in missing(no_cache, "GD012")
    assert "`server.requests_running`" in missing(beside_servers(), "GD012")
    no_queue = served(beside_servers(), requests_running=30.0, kv_cache=99.0)
    assert "`server.requests_waiting`" in missing(no_queue, "GD012")
    no_preemptions = served(
        beside_servers(), requests_running=30.0, requests_waiting=20.0, kv_cache=99.0
    )
    texts = [row.text for row in finding_in(no_preemptions, "GD012").evidence]
    assert "preemptions per step" not in texts


def an_engine_within_the_ranks_is_no_server() -> TraceBuilder:
    build = starved()
    build.knobs["vllm.mode"] = "colocate"
    return build


def of_a_server_either_is_enough(
    running: float, waiting: float, preemptions: float
) -> TraceBuilder:
    build = even({"rollout": 10.0}, knobs={"vllm.mode": "server"})
    gauges = {
        "requests_running": running,
        "requests_waiting": waiting,
        "kv_cache": 95.0,
        "preemptions": preemptions,
    }
    for name, number in gauges.items():
        unit = UNITS.get(f"server.{name}", "count")
        build.series(f"server.{name}", unit, [0.0, 40.0], [number] * 2, scope="server", pid=700)
    return build


RUNS = {
    "a full gpu gets advice": lambda: engine(memory_gib=(70.0, 76.0)),
    "waiting alone is not severe": lambda: engine(preemptions=0.0),
    "a cache with room passes however many wait": lambda: engine(full=60.0),
    "a full cache that holds nobody back passes": lambda: engine(waiting=0.0, preemptions=0.0),
    "a short rollout has nothing to give": lambda: engine(phases={**HEALTHY, "rollout": 0.2}),
    "without the engines counters it says what records them": run,
    "numbers that are none are no finding 1": lambda: engine(full=float("nan")),
    "numbers that are none are no finding 2": lambda: engine(waiting=float("nan"),
        preemptions=float("nan")),
    "a server or unknown memory is given no number": lambda: engine(memory_gib=None),
    **rows(
        "either waiting or throwing out is enough",
        lambda running, waiting, preemptions: engine(
            running=running, waiting=waiting, preemptions=preemptions
        ),
        (19.0, 1.0, 0.0),
        (19.1, 1.0, 0.0),
        (20.0, 0.0, 1.28),
        (20.0, 0.0, 1.27),
        (19.1, 1.0, 1.27),
    ),
    "however many are thrown out some of the rollout is work": lambda: starved(preemptions=50.0),
    "a server that the run asked is judged too": lambda: starved(pid=None),
    "nine tenths are full and less is not 1": lambda: starved(full=90.0),
    "nine tenths are full and less is not 2": lambda: starved(full=89.9),
    "few that wait are no harm 1": lambda: starved(running=94.0, waiting=6.0, preemptions=0.0),
    "few that wait are no harm 2": lambda: starved(running=96.0, waiting=4.0, preemptions=0.0),
    **named(of_a_server_either_is_enough, (95.0, 5.0, 0.0), (95.1, 4.9, 0.0), (100.0, 0.0, 0.2),
        (100.0, 0.0, 0.19), (95.1, 4.9, 0.19)),
}  # fmt: skip
