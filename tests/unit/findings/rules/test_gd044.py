from __future__ import annotations

import pytest

from grpo_doctor.findings.rule import Passed
from grpo_doctor.findings.rules import gd044_frequent_evaluation as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.recorded import finding_by, inside, judged, number


def evaluating(every: int, seconds: float, steps: int = 12) -> TraceBuilder:
    build = TraceBuilder(
        knobs={**SETTINGS, "eval.steps": every}, framework="trl", framework_version="1.16.0"
    )
    now = 0.0
    for step in range(steps):
        phases = {"rollout": 3.0, "train": 1.0}
        if step % every == every - 1:
            phases["eval"] = seconds
        build.step(0, step, now, phases)
        now += sum(phases.values())
    return build


def sick() -> TraceBuilder:
    return evaluating(3, 6.0)


def well() -> TraceBuilder:
    return evaluating(6, 1.0)


def test_evaluations_cost_their_part_of_the_whole_run() -> None:
    finding = finding_by(rule, sick())
    assert finding.cost == pytest.approx(24 / (48 + 24))
    assert finding.steps == (2, 5, 8, 11)
    assert number(finding, "one evaluation") == pytest.approx(6.0)
    assert finding.severity == "medium"
    assert (finding.fixes[0].knob, finding.fixes[0].after) == ("eval.steps", 21)


def test_logging_on_one_rank_costs_all_of_them() -> None:
    build = run(knobs={**SETTINGS, "log.completions": True})
    inside(build, "reward/log_completions", lambda rank, _: 0.19 if rank == 0 else 0.0)
    assert isinstance(judged(rule, build), Passed)
    slow = run({"rollout": 5.0, "reward": 1.0, "train": 3.0})
    inside(slow, "reward/log_completions", lambda rank, _: 0.8 if rank == 0 else 0.0)
    finding = finding_by(rule, slow)
    assert finding.headline == "Logging completions costs steps"
    assert finding.phases == ("reward",)
    assert finding.cost == pytest.approx(0.8 / 9.1, rel=0.02)
    assert finding.fixes[0].spelling == "--log_completions false"


RUNS = {
    "a rare or a single evaluation is none too many": lambda: evaluating(12, 30.0),
    "without either nothing is said": run,
}
