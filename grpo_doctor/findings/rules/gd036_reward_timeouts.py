"""Reward calls run into a time limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.findings.reward_functions import call_seconds, function_names
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView, number, timed_rule
from grpo_doctor.whatif import Edit, Replay
from grpo_doctor.whatif.models.reward import BUILT_IN

RULE = timed_rule(
    "reward",
    Signal(
        "a span for each reward function, `reward/NAME`, or a counter `reward/NAME_s` with the "
        "seconds of each call",
        lambda a: bool(function_names(a.trace)),
    ),
    uses=("reward/*",),
)
# Calls that end this near to the longest one end at the same length.
SAME_LENGTH = 0.03
# So many of them are a limit; and usual calls take at most this part of it.
MIN_CALLS = 3
USUAL_PART = 0.50
# A limit is a cliff: of the calls that take longer than that part, most end at it. Work that is now
# and then more, such as a full garbage collection, leaves calls of every length on the way up.
AT_THE_CLIFF = 0.75
# Nobody gives a call less time than this.
SHORTEST_S = 0.5
# What the long calls cost, as a share of the step.
MIN_SHARE = 0.02
# Half of the trainer's own limit is one slow day away from the end of the run.
NEAR, VERY_NEAR = 0.50, 0.80
_KNOB = "reward.timeout_s"


@dataclass(frozen=True, slots=True)
class _Calls:
    name: str
    count: int
    usual_s: float
    longest_s: float
    limited: int  # calls that end at the longest length, 0 where that is not a limit
    factor: float  # what is left of the function's time with those calls at the usual length
    cost: float  # their excess, as a share of the step


def check(view: RunView) -> Answer:
    """Look for calls that end at one length, and for calls near the trainer's limit."""
    calls = [c for name in function_names(view.trace) if (c := _calls(view, name)) is not None]
    limited = [c for c in calls if c.limited and c.cost >= MIN_SHARE]
    if limited:
        return _limited(view, max(limited, key=lambda c: c.cost))
    nearest = max(calls, key=lambda c: _nearness(view, c), default=None)
    if nearest is not None and _nearness(view, nearest) >= NEAR:
        return _near_limit(view, nearest)
    longest = max((c.longest_s for c in calls), default=0.0)
    return Passed(f"no call ends at a timeout; the longest takes {longest:.3g} s")


def _calls(view: RunView, name: str) -> _Calls | None:
    ranks = call_seconds(view, name)
    if not ranks:
        return None
    # One rank's usual length is not a limit, however long it is next to the others'.
    usual = np.concatenate([np.full(len(calls), np.median(calls)) for calls in ranks])
    seconds = np.concatenate(ranks)
    longest = float(seconds.max())
    at_limit = (seconds >= (1 - SAME_LENGTH) * longest) & (usual <= USUAL_PART * longest)
    limited = int(at_limit.sum())
    long = int((seconds > USUAL_PART * longest).sum())
    if limited < max(MIN_CALLS, AT_THE_CLIFF * long) or longest < SHORTEST_S:
        limited = 0
    excess = float((seconds - usual)[at_limit].sum()) if limited else 0.0
    columns, steps = len(view.model.ranks), len(view.analysis.step_seconds)
    cost = excess / (columns * steps * view.step_s) if columns * steps * view.step_s else 0.0
    factor = 1 - excess / float(seconds.sum())
    return _Calls(name, len(seconds), float(np.median(usual)), longest, limited, factor, cost)


def _nearness(view: RunView, calls: _Calls) -> float:
    limit = number(view.knob(_KNOB))
    # The bundled trainer's own functions have the limit for each completion, not for the call.
    if not limit or calls.name in BUILT_IN:
        return 0.0
    return float(calls.longest_s / limit)


def _limited(view: RunView, calls: _Calls) -> Finding:
    scenario = f"with the calls of {calls.name} that reached the timeout at their usual length"
    change = Replay((Edit((f"reward/{calls.name}",), calls.factor),), scenario, half=True)
    text = (
        f"in {calls.name}: a timeout slightly above its slowest real answer instead of "
        f"{calls.longest_s:.3g} s, and all requests of a batch at once"
    )
    risk = "Answers after the new timeout are lost."
    fix = view.advice(text, change, safety="needs-code", risk=risk)
    return Finding(
        confidence=0.75,
        cost=calls.cost,
        phases=("reward",),
        evidence=_evidence(view, calls),
        cause=f"{calls.limited} of {calls.count} calls of {calls.name} end after "
        f"{calls.longest_s:.3g} s, within {percent(SAME_LENGTH)} of each other, while the usual "
        f"call takes {calls.usual_s:.2g} s.",
        fixes=(fix,),
        headline=f"Calls of {calls.name} run into a time limit of {calls.longest_s:.3g} s",
    )


def _near_limit(view: RunView, calls: _Calls) -> Finding:
    limit, nearness = number(view.knob(_KNOB)) or 0.0, _nearness(view, calls)
    reason = "it saves no time; it keeps the run alive"
    risk = "A hanging function is detected later."
    return Finding(
        severity="medium" if nearness >= VERY_NEAR else "low",
        confidence=0.8,
        phases=("reward",),
        evidence=(
            *_evidence(view, calls),
            Evidence("limit at which the run ends", limit, "s", _KNOB),
        ),
        cause=f"The longest call of {calls.name} took {calls.longest_s:.3g} s of the {limit:.3g} s "
        "at which the run ends.",
        fixes=(view.setting(_KNOB, 4 * limit, reason, risk=risk),),
        headline=f"{calls.name} comes near the limit at which the run ends",
    )


def _evidence(view: RunView, calls: _Calls) -> tuple[Evidence, ...]:
    source = f"reward/{calls.name}, {calls.count} calls"
    evidence = [
        Evidence("longest call", calls.longest_s, "s", source),
        Evidence("usual call", calls.usual_s, "s", source),
    ]
    if calls.limited:
        evidence.append(Evidence("calls that end at the same length", calls.limited, "", source))
    for kind in ("timeouts", "retries"):
        table = view.counted(f"reward/{kind}")
        if np.isfinite(table).any():
            evidence.append(Evidence(kind, float(np.nansum(table)), "", f"reward/{kind}"))
    return tuple(evidence)
