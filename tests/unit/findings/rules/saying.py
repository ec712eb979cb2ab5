"""What one rule says of a built run, for the tests of the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from grpo_doctor.findings import NotRun, RunView, rules, run_rules
from grpo_doctor.findings.rule import Answer, Finding, Passed
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, STEPS, run

BY_ID = {rule.RULE.id: rule for rule in rules.ALL}


def answer_to(build: TraceBuilder, rule: str) -> Answer | NotRun:
    """The answer of one rule, by way of the engine that runs all."""
    results = run_rules(RunView.of(build.build()), [BY_ID[rule]])
    assert results.errors == ()
    for group in (results.findings, results.passed, results.not_run, results.not_applicable):
        for _, answer in group:
            return answer
    raise AssertionError(f"{rule} answered nothing")


def finding_in(build: TraceBuilder, rule: str) -> Finding:
    """The finding; fails with what the rule said instead."""
    answer = answer_to(build, rule)
    assert isinstance(answer, Finding), answer
    return answer


def passed(build: TraceBuilder, rule: str) -> str:
    """The note of a rule that passed the run."""
    answer = answer_to(build, rule)
    assert isinstance(answer, Passed), answer
    return answer.note


def value(finding: Finding, text: str) -> float:
    """The number of the one piece of evidence whose text has these words."""
    (number,) = [e.value for e in finding.evidence if text in e.text]
    assert isinstance(number, int | float)
    return float(number)


def step_s(phases: Mapping[str, float] = HEALTHY, idle: float = 0.05) -> float:
    """The mean step of `run` with these phases."""
    return idle + 1.01 * sum(phases.values())


def step_starts(phases: Mapping[str, float] = HEALTHY, idle: float = 0.05) -> list[float]:
    """When each step of `run` begins."""
    starts = [0.0]
    for number in range(STEPS):
        starts.append(starts[-1] + idle + (1 + 0.01 * (number % 3)) * sum(phases.values()))
    return starts[:-1]


def even(
    phases: Mapping[str, float],
    *,
    ranks: int = 1,
    step_s: float = 10.0,
    knobs: Mapping[str, Any] = SETTINGS,
    **facts: Any,
) -> TraceBuilder:
    """Four steps that are all alike, so that shares are as round as the seconds are: for edges."""
    facts = {"framework": "ms-swift", "framework_version": "4.6.0", **facts}
    build = TraceBuilder(ranks=ranks, knobs=knobs, **facts)
    for number in range(4):
        for rank in range(ranks):
            build.step(rank, number, step_s * number, phases, end_s=step_s * (number + 1))
    return build


def counted(
    build: TraceBuilder, values: Mapping[str, float], ranks: Sequence[int] = (0, 1, 2, 3)
) -> TraceBuilder:
    """Adds counters that are written once per step, in its middle, with the same value."""
    times = [start + 0.5 * step_s() for start in step_starts()]
    for name, number in values.items():
        for rank in ranks:
            build.series(name, "", times, [number] * len(times), scope="counter", rank=rank)
    return build


def with_knobs(**knobs: Any) -> dict[str, Any]:
    """The settings of `run` and some more; dots are spelled `__`."""
    return {**SETTINGS, **{name.replace("__", "."): value for name, value in knobs.items()}}


Runs = dict[str, Callable[[], TraceBuilder]]


def rows(name: str, build: Callable[..., TraceBuilder], *arguments: Any) -> Runs:
    """One run for each row of arguments (a tuple, or one), such as both sides of a threshold."""
    return {
        f"{name}: {number}": partial(build, *(row if isinstance(row, tuple) else (row,)))
        for number, row in enumerate(arguments, 1)
    }


def named(build: Callable[..., TraceBuilder], *arguments: Any) -> Runs:
    """The same, by the name of what builds them."""
    return rows(build.__name__.replace("_", " "), build, *arguments)


__all__ = ["HEALTHY", "SETTINGS", "STEPS", "run"]
