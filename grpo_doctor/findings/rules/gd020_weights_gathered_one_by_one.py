"""Weights are gathered one by one for the rollout engine."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.span_counts import gather_evidence, gathers
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule("sync", min_ranks=2)
# Published per-parameter syncs took 4 times as long as packed ones; a sync of a twentieth of the
# step then has 4% to give.
MIN_SYNC_SHARE = 0.05
# A model of 24 layers has some 300 tensors. A few dozen parts are buckets or layers.
MANY = 64
# The fixed part by itself has to be worth a change of settings.
MIN_FIXED_SHARE = 0.03
# As many groups as a 7B model needs for groups of about 1 GiB.
GROUPS = 16
_KNOB = "sync.move_model_batches"


def check(view: RunView) -> Answer:
    """Count the gathers within the sync."""
    if not view.share("sync"):
        return NotApplicable("no weights are sent to a rollout engine")
    share, gathering = view.share("sync"), gathers(view)
    fixed = gathering.fixed_s / view.step_s
    note = f"sync takes {percent(share, 1)} of the step, in {gathering.count:.0f} gathers"
    if share < MIN_SYNC_SHARE or gathering.count < MANY:
        return Passed(note)
    if view.now(_KNOB) is not None:
        return Passed(f"{note}; {_KNOB} is set, which another rule judges")
    if gathering.seconds and fixed < MIN_FIXED_SHARE:
        return Passed(f"{note}, whose fixed cost is {percent(fixed, 1)} of the step")
    return Finding(
        severity=severity_of(fixed) if gathering.seconds else "low",
        confidence=0.8 if gathering.seconds else 0.5,
        cost=fixed,
        phases=("sync",),
        evidence=gather_evidence(view, gathering),
        cause=f"Sending the weights takes {view.seconds('sync'):.3g} s of each {view.step_s:.3g} s "
        f"step, in {gathering.count:.0f} gathers"
        + (f", whose fixed cost alone is {gathering.fixed_s:.3g} s." if gathering.seconds else "."),
        fixes=(_fix(view),),
    )


def _fix(view: RunView) -> Fix:
    risk = "Each group must fit next to the engine's memory."
    if view.spell(_KNOB, GROUPS) is not None:
        return view.setting(_KNOB, GROUPS, risk=risk)
    outcome = "this framework has no setting for it"
    text = "send the weights in buckets of some hundred megabytes, not one by one"
    if view.spell("sync.flattened", True) is not None:
        return view.setting("sync.flattened", True, outcome, risk=risk)
    text = f"{text}: newer versions of most frameworks do"
    return view.advice(text, outcome, risk=risk)
