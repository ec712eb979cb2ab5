"""Rewards run one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.findings.reward_functions import (
    FUNCTION_COUNTERS,
    SCORING_CPUS,
    Scoring,
    busy_while_scoring,
    function_names,
    functions,
    reward_seconds,
    typical,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import MIN_SCORING_S, percent
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.span_counts import times_per_step
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Edit, Replay, Settings, WhatIf
from grpo_doctor.whatif.models.reward import BUILT_IN

RULE = timed_rule(
    "reward",
    Signal(
        "a span for each reward function, `reward/NAME`, by grpo_doctor_probes.phase",
        lambda a: bool(function_names(a.trace)),
    ),
    uses=(FUNCTION_COUNTERS, *SCORING_CPUS),
)
# What running at once would save, as a share of the step.
MIN_SHARE = 0.05
# A function that takes less than this part of all scoring needs no process of its own.
MIN_PART = 0.05
# The ranks waited for nearly the sum: nothing ran at once.
SERIAL = 0.80
# More calls of a function than this per step are calls for single completions.
SINGLE_CALLS = 8
# Processes for calls of single completions; a host has at least this many cores per rank.
POOL = 4
_KNOB = "reward.num_workers"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What could run at once: seconds per step on a typical rank."""

    scorings: list[Scoring]
    waited_s: float
    sum_s: float
    ideal_s: float
    processes: int
    calls: float

    @property
    def saved_s(self) -> float:
        return max(0.0, min(self.waited_s, self.sum_s) - self.ideal_s)

    @property
    def remaining(self) -> float:
        """What would be left of the waiting, as a share."""
        return 1 - self.saved_s / self.waited_s if self.waited_s else 1.0


def check(view: RunView) -> Answer:
    """Compare the wait time with the slowest function."""
    plan = _plan(view)
    if plan is None:
        return NotApplicable("one reward function takes the time, called once per batch")
    share = view.of_step(plan.saved_s)
    count = len(plan.scorings)
    worth = share >= MIN_SHARE and plan.saved_s >= MIN_SCORING_S
    if not worth or plan.waited_s < SERIAL * plan.sum_s:
        return Passed(
            f"more of {count} function{'s' * (count != 1)} at once could save "
            f"{percent(share, 1)} of the step at most"
        )
    busy = busy_while_scoring(view)
    if busy is not None:
        return Passed(f"the host's CPUs are {busy:.0f}% busy while scoring: none is left for more")
    single = plan.calls >= SINGLE_CALLS
    return Finding(
        confidence=0.8,
        cost=share,
        phases=("reward",),
        evidence=_evidence(view, plan),
        cause=f"The ranks wait {plan.waited_s:.3g} s per step for functions that take "
        f"{plan.sum_s:.3g} s together; in parallel they would take {plan.ideal_s:.3g} s."
        + (
            f" {plan.scorings[0].name} is called {plan.calls:.0f} times per step." if single else ""
        ),
        fixes=(_fix(view, plan),),
        headline="Completions are scored one at a time" if single else "",
    )


def _plan(view: RunView) -> _Plan | None:
    scorings = functions(view)
    total = sum(typical(f.own_s) for f in scorings)
    weighty = [f for f in scorings if total and typical(f.own_s) >= MIN_PART * total]
    if not weighty:
        return None
    calls = times_per_step(view, weighty[0].span)
    if len(weighty) < 2 and calls < SINGLE_CALLS and not _divisible(view, weighty[0], 1):
        return None
    processes = max(len(weighty), POOL if calls >= SINGLE_CALLS or len(weighty) == 1 else 2)
    ideal = max(
        typical(f.own_s)
        / (POOL if (f is weighty[0] and calls >= SINGLE_CALLS) or _divisible(view, f, 1) else 1)
        for f in weighty
    )
    return _Plan(weighty, typical(reward_seconds(view)), total, ideal, processes, calls)


def _divisible(view: RunView, scoring: Scoring, processes: int) -> bool:
    """Whether more processes share this function's batch: the bundled trainer's own ones do."""
    workers = integer(view.fact(_KNOB))
    return workers is not None and workers <= processes and scoring.name in BUILT_IN


def _evidence(view: RunView, plan: _Plan) -> tuple[Evidence, ...]:
    source, first = "reward spans, a typical rank", plan.scorings[0]
    single = plan.calls if plan.calls >= SINGLE_CALLS else None
    return (
        *(
            Evidence(f"{f.name} per step", typical(f.own_s), "s", f"{f.span}, a typical rank")
            for f in plan.scorings
        ),
        Evidence("wait time for all of them, per step", plan.waited_s, "s", source),
        Evidence("the slowest, or its share of a pool", plan.ideal_s, "s", source),
        Evidence(f"calls of {first.name} per step", single, "", first.span),
        Evidence("processes that run them", integer(view.fact(_KNOB)), "", _KNOB),
    )


def _change(view: RunView, plan: _Plan) -> WhatIf:
    scenario = f"with its rewards at once ({plan.processes} processes)"
    own = Replay((Edit(("reward",), plan.remaining),), scenario, half=True)
    if integer(view.now(_KNOB)) is None:
        return own
    return Settings(((_KNOB, plan.processes),), own)


def _fix(view: RunView, plan: _Plan) -> Fix:
    change = _change(view, plan)
    if integer(view.now(_KNOB)) is not None and plan.calls < SINGLE_CALLS:
        risk = f"Takes {plan.processes} processes per rank."
        return view.setting(_KNOB, plan.processes, change, risk=risk)
    names = ", ".join(f.name for f in plan.scorings)
    text = (
        f"score all completions of a batch at once in {names}: a pool of {POOL} processes"
        if plan.calls >= SINGLE_CALLS
        else f"run {names} at once: one function with a pool of processes, or async functions"
    )
    return view.advice(
        text, change, safety="needs-code", risk="The functions must not share state."
    )
