"""Rewards are slow."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings.reward_functions import (
    FUNCTION_COUNTERS,
    SCORING_CPUS,
    Scoring,
    busy_while_scoring,
    functions,
    reward_seconds,
    typical,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import MIN_SCORING_S, PROFILE, percent
from grpo_doctor.findings.view import RunView, integer, timed_rule
from grpo_doctor.whatif import Prediction, Replay, Settings, without
from grpo_doctor.whatif.models.reward import BUILT_IN

RULE = timed_rule("reward", uses=(FUNCTION_COUNTERS, *SCORING_CPUS))
# Rules that compare strings take far less than a percent; a twentieth is worth a profile.
MIN_SHARE = 0.05
# One function dominates where it takes half as much again as all others together.
DOMINATES = 0.60
SHOWN = 4
_SCORES = "reward"  # the role of a process that does nothing else
_KNOB, _WORKERS = "reward.num_workers", 4


def check(view: RunView) -> Answer:
    """Compare what every rank spends on scoring with the step."""
    per_rank = reward_seconds(view)
    if not per_rank.any():
        return NotApplicable("no time in `reward` was recorded")
    scorings = functions(view)
    # What is left of the phase, decoding and gathering, is not a function's.
    seconds = min(typical(per_rank), sum(typical(f.seen_s) for f in scorings) or np.inf)
    share = view.of_step(seconds)
    if share < MIN_SHARE or seconds < MIN_SCORING_S:
        return Passed(
            f"scoring takes {percent(share, 1)} of the step, {seconds:.2g} s, on a typical rank"
        )
    first = scorings[0] if scorings and _part(scorings[0], scorings) > DOMINATES else None
    better_rule = _better_told(view, first, share)
    if better_rule is not None:
        return Passed(f"scoring takes {percent(share, 1)} of the step; see {better_rule}")
    return Finding(
        confidence=0.9 if first else 0.75,
        cost=share,
        phases=("reward",),
        evidence=(
            *view.phase_evidence("reward"),
            *([Evidence("scoring per step", seconds, "s", "reward/* spans")] if scorings else []),
            *[
                Evidence(f"{f.name} per step", typical(f.own_s), "s", f"{f.span} on a typical rank")
                for f in scorings[:SHOWN]
            ],
        ),
        cause=f"Each step spends {seconds:.3g} s of {view.step_s:.3g} s on scoring"
        + (
            f", {percent(_part(first, scorings))} of it in {first.name}."
            if first
            else "; no single function is most of it."
        ),
        fixes=tuple(_fixes(view, first)),
        headline=f"Reward `{first.name}` is slow" if first else "",
    )


def _better_told(view: RunView, first: Scoring | None, share: float) -> str | None:
    """The rule that says why scoring takes so long, and what to do: functions in turn of which
    none is most of it, or that take more processes; collections; or calls that end at a limit."""
    if (first is None or _takes_processes(view, first)) and view.found("GD034") is not None:
        return "GD034"
    collecting = view.found("GD024")
    # What does not fit into the rest of the step is collected while scoring.
    if collecting is not None and collecting.cost - (1 - share) >= share / 2:
        return "GD024"
    limited = view.found("GD036")
    if limited is not None and share - limited.cost < MIN_SHARE:
        return "GD036"
    return None


def _part(scoring: Scoring, scorings: list[Scoring]) -> float:
    total = sum(typical(f.own_s) for f in scorings)
    return typical(scoring.own_s) / total if total else 0.0


def _fixes(view: RunView, first: Scoring | None) -> list[Fix]:
    fixes = []
    if _takes_processes(view, first) and busy_while_scoring(view) is None:
        each = "" if _spreads_any(view) else " per rank"
        risk = f"Takes {_WORKERS} processes{each} and their CPU time."
        reason = "no model predicts the effect of more processes on these functions"
        change = Settings(((_KNOB, _WORKERS),), reason)
        fixes.append(view.setting(_KNOB, _WORKERS, change, risk=risk))
    scorers = any(p.role == _SCORES for p in view.trace.processes)
    where = "a process that scores" if scorers else "a rank while it is scoring"
    text = f"profile {first.name if first else 'the reward functions'}: {PROFILE} on {where}"
    fixes.append(view.advice(text, _bound(view, first), safety="needs-code"))
    return fixes


def _takes_processes(view: RunView, first: Scoring | None) -> bool:
    workers = integer(view.now(_KNOB))
    built_in = first is not None and first.name in BUILT_IN
    return workers is not None and workers < _WORKERS and (built_in or _spreads_any(view))


def _spreads_any(view: RunView) -> bool:
    """Return whether its workers are the job's, and call the user's functions too."""
    return view.trace.run.framework == "verl"


def _bound(view: RunView, first: Scoring | None) -> str:
    """Why its gain is not predicted, and the bound: a replay is of the main thread's spans."""
    reason = "a trace does not show what its code could save"
    for span in (first.span, "reward") if first else ("reward",):
        bound = view.gain(Replay((without(span),), f"without {span}"))
        if isinstance(bound, Prediction) and round(bound.mid):
            return f"{reason}; without {span} at all the step would be {-bound.mid:.0f}% shorter"
    return reason
