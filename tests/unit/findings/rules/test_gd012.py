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
    not_applicable,
    passed,
    run,
    step_s,
    value,
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
        {
            "engine/kv_cache_peak_pct": full,
            "engine/running_requests_mean": running,
            "engine/running_requests_peak": 40.0,
            "engine/waiting_requests_mean": waiting,
            "engine/waiting_requests_peak": 24.0,
            "engine/preemptions": preemptions,
        },
    )


def sick() -> TraceBuilder:
    return engine()


def well() -> TraceBuilder:
    return engine(full=60.0, waiting=0.0, preemptions=0.0)


def test_waiting_and_preempted_requests_are_the_cost() -> None:
    finding = finding_in(sick(), "GD012")
    queued, preempted = 20 / 50, 12 / 64
    assert value(finding, "waiting requests") == pytest.approx(100 * queued)
    assert value(finding, "preemptions per rollout") == 12
    rollout = 5.0 * 1.01 / step_s()
    lost = 1 - (1 - queued) / (1 + preempted)
    assert finding.cost == pytest.approx(rollout * lost, rel=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.9)


def test_the_engine_gets_what_no_gpu_ever_used() -> None:
    # 48 of 80 GiB used: 40% free, a tenth stays, 0.3 + 0.3.
    assert finding_in(sick(), "GD012").fixes[0].spelling == "--vllm_gpu_memory_utilization 0.6"


def test_a_full_gpu_gets_advice() -> None:
    (fix,) = finding_in(engine(memory_gib=(70.0, 76.0)), "GD012").fixes
    assert fix.knob is None
    assert "--vllm_gpu_memory_utilization" in fix.spelling
    assert "Gain not predicted" in fix.risk


def test_waiting_alone_is_not_grave() -> None:
    finding = finding_in(engine(preemptions=0.0), "GD012")
    assert (finding.severity, finding.confidence) == ("medium", 0.7)


def test_a_cache_with_room_passes_however_many_wait() -> None:
    assert "60% full" in passed(engine(full=60.0), "GD012")


def test_a_full_cache_that_holds_nobody_back_passes() -> None:
    assert "0% of the requests wait" in passed(engine(waiting=0.0, preemptions=0.0), "GD012")


def test_a_short_rollout_has_nothing_to_give() -> None:
    assert "rollout takes" in passed(engine(phases={**HEALTHY, "rollout": 0.2}), "GD012")


def test_without_the_engines_counters_it_says_what_records_them() -> None:
    assert "engine/kv_cache_peak_pct" in missing(run(), "GD012")


def test_numbers_that_are_none_are_no_finding() -> None:
    assert "kv_cache_peak_pct" in missing(engine(full=float("nan")), "GD012")
    assert "0% of the requests wait" in passed(
        engine(waiting=float("nan"), preemptions=float("nan")), "GD012"
    )


def test_a_server_or_unknown_memory_is_given_no_number() -> None:
    advised = finding_in(engine(), "GD012").fixes[0]
    assert advised.knob == "vllm.gpu_memory_utilization"
    assert finding_in(engine(memory_gib=None), "GD012").fixes[0].knob != advised.knob


def test_the_mean_of_the_engine_s_requests_is_shown() -> None:
    finding = finding_in(sick(), "GD012")
    assert value(finding, "requests running") == 30.0
    assert value(finding, "requests waiting") == 20.0


@pytest.mark.parametrize(
    ("running", "waiting", "preemptions", "is_found"),
    [
        (19.0, 1.0, 0.0, True),  # one in twenty waits
        (19.1, 1.0, 0.0, False),
        (20.0, 0.0, 1.28, True),  # one in fifty of 64 is thrown out
        (20.0, 0.0, 1.27, False),
        (19.1, 1.0, 1.27, False),
    ],
)
def test_either_waiting_or_throwing_out_is_enough(
    running: float, waiting: float, preemptions: float, is_found: bool
) -> None:
    build = engine(running=running, waiting=waiting, preemptions=preemptions)
    if is_found:
        assert finding_in(build, "GD012").phases == ("rollout",)
    else:
        assert "of the requests wait" in passed(build, "GD012")


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


def test_of_a_server_they_are_too() -> None:
    finding = finding_in(starved(), "GD012")
    per_step = 2.0 * HEALTHY["rollout"]
    assert value(finding, "waiting requests") == pytest.approx(40.0)
    assert value(finding, "preemptions per step") == pytest.approx(per_step, rel=0.02)
    rollout = 5.0 * 1.01 / step_s()
    assert finding.cost == pytest.approx(rollout * (1 - 0.6 / (1 + per_step / 50)), rel=0.02)
    assert (finding.severity, finding.confidence) == ("high", 0.9)
    assert "`vllm serve` on host-a, pid 700 99% full" in finding.cause


def test_of_several_servers_the_one_that_holds_most_back_is_named() -> None:
    finding = finding_in(one_of_two(), "GD012")
    assert "pid 700" in finding.cause
    assert value(finding, "engines with a full cache") == 2


def test_however_many_are_thrown_out_some_of_the_rollout_is_work() -> None:
    cost = finding_in(starved(preemptions=50.0), "GD012").cost
    assert 0.9 * 5.0 * 1.01 / step_s() < cost < 5.0 * 1.01 / step_s()


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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve m --num-gpu-blocks-override 64", "without `--num-gpu-blocks-override`"),
        ("vllm serve m --gpu-memory-utilization 0.95", "add a server"),
        ("sglang serve --model-path m", "(--mem-fraction-static)"),
        ("bash serve.sh", "(for `swift rollout`: --vllm_gpu_memory_utilization)"),
    ],
)
def test_where_no_share_helps_or_none_is_known_there_is_advice(command: str, words: str) -> None:
    fix = its_fix(*command.split())
    assert not fix.pasted
    assert words in fix.spelling


def test_a_server_that_the_run_asked_is_judged_too() -> None:
    finding = finding_in(starved(pid=None), "GD012")
    assert "cache of the rollout server 99% full" in finding.cause
    assert not finding.fixes[0].pasted


def test_nine_tenths_are_full_and_less_is_not() -> None:
    assert finding_in(starved(full=90.0), "GD012")
    assert "90% full" in passed(starved(full=89.9), "GD012")


def test_few_that_wait_are_no_harm() -> None:
    calm = starved(running=96.0, waiting=4.0, preemptions=0.0)
    assert "4% of the requests wait" in passed(calm, "GD012")
    assert finding_in(starved(running=94.0, waiting=6.0, preemptions=0.0), "GD012")


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


def test_an_engine_within_the_ranks_is_no_server() -> None:
    build = starved()
    build.knobs["vllm.mode"] = "colocate"
    assert "within the ranks" in not_applicable(build, "GD012")


@pytest.mark.parametrize(
    ("running", "waiting", "preemptions", "harm"),
    [
        (95.0, 5.0, 0.0, True),  # one in twenty waits
        (95.1, 4.9, 0.0, False),
        (100.0, 0.0, 0.2, True),  # two of a hundred are thrown out in ten seconds
        (100.0, 0.0, 0.19, False),
        (95.1, 4.9, 0.19, False),
    ],
)
def test_of_a_server_either_is_enough(
    running: float, waiting: float, preemptions: float, harm: bool
) -> None:
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
    if harm:
        assert finding_in(build, "GD012").phases == ("rollout",)
    else:
        assert "of the requests wait" in passed(build, "GD012")
