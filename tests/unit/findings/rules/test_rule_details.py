"""What each rule says about particular runs."""

from __future__ import annotations

from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.rule import Finding, Fix
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import (
    starved,
)


def answers(build: TraceBuilder) -> dict[str, Finding | str]:
    results = run_rules(RunView.of(build.build()))
    finding: dict[str, Finding | str] = {r.id: f for r, f in results.findings}
    finding |= {r.id: p.note for r, p in results.passed}
    finding |= {r.id: "; ".join(n.missing) for r, n in results.not_run}
    finding |= {r.id: n.reason for r, n in results.not_applicable}
    return finding


def finding_in(build: TraceBuilder, rule: str) -> Finding:
    finding = answers(build)[rule]
    assert isinstance(finding, Finding), finding
    return finding


def mid(fix: Fix) -> float:
    assert fix.predicted is not None
    return fix.predicted.mid


def test_a_busy_host_gets_no_prediction() -> None:
    build = starved()
    build.series("host.cpu", "%", [0, 100], [97, 97])
    (fix,) = finding_in(build, "GD002").fixes
    assert fix.predicted is None
    assert "97% busy without them" in fix.risk


def test_a_slow_rank_and_its_own_checkpoints_differ() -> None:
    # Rank 0 writes one long checkpoint while the others wait: a duty, not a slow rank.
    build = TraceBuilder(ranks=2)
    for number in range(6):
        at, saves = 20.0 * number, 8.0 * (number == 3)
        for rank in (0, 1):
            arrives = at + 1 + (saves if rank == 0 else 0)
            build.span(rank, "train", at, at + 1)
            build.span(rank, "checkpoint", at + 1, at + 2 + saves)
            build.collective(rank, number, arrives, at + 2 + saves)
            build.step(rank, number, at, {}, end_s=at + 2 + saves)
    answer = answers(build)["GD004"]
    assert isinstance(answer, str)
    assert "0% of it is for rank 0" in answer


def test_without_collectives_the_signal_is_missing() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(4):
        for rank in (0, 1):
            build.step(rank, number, 10.0 * number, {"train": 5.0 + rank})
    answer = answers(build)["GD004"]
    assert isinstance(answer, str)
    assert "collectives" in answer


def test_a_callback_that_most_of_it_is_in_is_named() -> None:
    build = TraceBuilder()
    for number in range(6):
        at = 10.0 * number
        build.step(0, number, at, {"train": 6.0}, end_s=at + 9)
        build.span(0, "callback/Journal.on_step_end", at + 6, at + 8.5)
    finding = finding_in(build, "GD005")
    assert finding.cause.endswith("83% of it in `callback/Journal.on_step_end`.")
    assert finding.fixes[0].spelling.startswith("make `Journal.on_step_end` faster")


def test_runs_of_two_steps_are_not_judged() -> None:
    build = TraceBuilder(framework="ms-swift", framework_version="4.6.0")
    for number in range(2):
        build.step(0, number, 10.0 * number, {"dataload": 5.0, "train": 5.0})
    assert all(not isinstance(answer, Finding) for answer in answers(build).values())


def test_a_checkpoint_that_one_rank_writes_for_all_is_no_straggler() -> None:
    trace = TraceBuilder(ranks=2)
    for n in range(6):
        start = 3.0 * n
        trace.step(0, n, start, {"train": 1.0, "checkpoint": 2.0})
        trace.step(1, n, start, {"train": 1.0, "checkpoint": 2.0})
        trace.collective(0, n, start + 2.9, start + 3.0)
        trace.collective(1, n, start + 1.0, start + 3.0)
    assert isinstance(answers(trace)["GD004"], str)
    assert finding_in(trace, "GD070").fixes[0].spelling == "--save_steps 500"
