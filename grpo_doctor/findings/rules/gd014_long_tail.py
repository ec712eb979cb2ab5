"""A few long completions hold up the rollout."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import COMPLETIONS, RUNNING, Tail, length_at, lengths, tail
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule

MEAN, LONGEST = signals.LENGTHS_LOGGED
RULE = timed_rule(
    "rollout",
    signals.any_of(
        f"`{RUNNING}` (recorded of vLLM 0.12 and newer), or the metrics `{LONGEST}` and `{MEAN}`",
        signals.sampled(RUNNING, ""),
        signals.logged(*signals.LENGTHS_LOGGED),
    ),
    uses=(COMPLETIONS,),
)
# Completions that end evenly over the rollout have a tenth of it in this tail, exponentially
# distributed ones of 64 requests half of it; what costs is measured against the step, below.
LEFT = 0.10
MIN_TAIL_OF_ROLLOUT = 0.25
# With fewer requests "a tenth" is one, and a tail of one request is every rollout's end.
MIN_PEAK = 16
# The spread of a rollout of many samples is a few percent of the step in any run.
MIN_SHARE = 0.08
# A busy machine also makes ranks finish apart; lengths do where the longest is three times the
# mean. Of 64 exponentially distributed lengths it is 4.7 times (the 64th harmonic number).
MIN_RATIO = 3.0
# A limit that 98 in 100 completions stay below cuts what rarely matters.
COVERED = 0.98
_KNOB = "rollout.max_completion_length"


def check(view: RunView) -> Answer:
    """Look for an engine that is nearly empty, and for ranks that finish apart."""
    end = tail(view, LEFT)
    ratio = _ratio(view)
    apart = _apart_s(view) if ratio is not None and ratio >= MIN_RATIO else 0.0
    emptied = 0.0
    if end is not None and end.peak >= MIN_PEAK and end.share >= MIN_TAIL_OF_ROLLOUT:
        emptied = end.seconds
    seconds = max(emptied, apart)
    share = seconds / view.step_s
    if share < MIN_SHARE:
        return Passed(
            f"tails take {percent(share, 1)} of the step"
            + (f", {percent(end.share)} of the rollout" if end is not None else "")
        )
    return Finding(
        # High only where the engine itself was nearly empty.
        severity=severity_of(share, proven=emptied >= apart),
        confidence=0.9 if emptied >= apart else 0.6,
        cost=share,
        phases=("rollout",),
        evidence=_evidence(view, end, apart, ratio),
        cause=f"{seconds:.3g} s of each {view.step_s:.3g} s step pass while "
        + (
            f"at most a tenth of the engine's {end.peak:.0f} requests are left."
            if end is not None and emptied >= apart
            else "one rank, not always the same, still generates and the others wait."
        ),
        fixes=(_fix(view),),
    )


def _ratio(view: RunView) -> float | None:
    """Return the longest completion / mean one, the mean over the steps' metrics."""
    longest, mean = view.metric_values(LONGEST), view.metric_values(MEAN)
    if longest is None or mean is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = longest / mean
    ratios = ratios[np.isfinite(ratios)]
    return float(ratios.mean()) if len(ratios) else None


def _apart_s(view: RunView) -> float:
    """How much longer the slowest rank's rollout takes than the mean, beyond what any one rank is
    slower by in all steps."""
    work = view.analysis.phase_work("rollout")
    if work.shape[1] < 2:
        return 0.0
    return float(max(0.0, work.max(axis=1).mean() - work.mean(axis=0).max()))


def _evidence(
    view: RunView, end: Tail | None, apart: float, ratio: float | None
) -> tuple[Evidence, ...]:
    ends = []
    if end is not None:
        source = f"counter {RUNNING} during rollout"
        ends += [
            Evidence(
                "with at most a tenth of the requests left, per step", end.seconds, "s", source
            ),
            Evidence("of the rollout", round(100 * end.share, 1), "%", source),
            Evidence("most requests at once", end.peak, "", source),
        ]
    if apart:
        steps, ranks = view.analysis.used_seconds.shape[:2]
        source = f"rollout spans of {ranks} ranks, {steps} steps"
        ends.append(
            Evidence("the slowest rank's rollout minus the mean, per step", apart, "s", source)
        )
    if ratio is not None:
        ends.append(Evidence("longest completion / mean", round(ratio, 2), "x", "metrics"))
    return (*ends, *view.phase_evidence("rollout"))


def _fix(view: RunView) -> Fix:
    # A limit that nearly all completions stay below, where that is a real cut.
    now, limit = view.now(_KNOB), length_at(lengths(view), COVERED)
    if now is not None and limit is not None and limit <= 0.75 * now:
        risk = (
            f"{percent(1 - COVERED)} of this run's completions are longer and would be truncated."
        )
        return view.setting(_KNOB, limit, safety="changes-algorithm", risk=risk)
    outcome = "how rollout time grows with more prompts was not measured"
    risk = "Later steps train on completions of slightly older weights."
    more = "generate more prompts at once and train several steps on them"
    if view.spell("rollout.async", True) is None:
        return view.advice(more, outcome, safety="changes-algorithm", risk=risk)
    risk = f"Overlaps rollouts with training; or {more}. {risk}"
    return view.setting("rollout.async", True, outcome, safety="changes-algorithm", risk=risk)
