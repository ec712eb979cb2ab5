"""Weight syncs wait for rollouts in flight."""

from __future__ import annotations

from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Edit, Replay

RULE = timed_rule("sync")
# Most of the sync, so that nothing about the transfer explains it.
MIN_OF_SYNC = 0.50
MIN_SHARE = 0.05
_SOURCE = "requests and calls of trajectories during sync spans"


def check(view: RunView) -> Answer:
    """Compare weight syncs with what trajectories did meanwhile."""
    found = view.trace.trajectories
    if found is None or not found.syncs.seconds:
        return NotApplicable("no trajectories and weight syncs were recorded together")
    waits = min(1.0, found.syncs.waiting_s / found.syncs.seconds)
    share = waits * view.share("sync")
    if waits < MIN_OF_SYNC or share < MIN_SHARE:
        return Passed(f"{percent(waits)} of weight syncs, {percent(share, 1)} of the step")
    scenario = "with weight syncs that interrupt the rollouts"
    change = Replay((Edit(("sync",), 1 - waits),), scenario, half=True)
    risk = (
        "An interrupted completion continues with newer weights, and its prompt is computed again."
    )
    fix = view.advice(
        "interrupt rollouts for a weight sync and continue them afterwards (partial rollouts)",
        change,
        safety="changes-algorithm",
        risk=risk,
    )
    parts = {"transfer": found.syncs.transfer_s, "load": found.syncs.load_s}
    return Finding(
        confidence=0.8,
        cost=share,
        phases=("sync",),
        evidence=(
            Evidence("of weight syncs, waiting for rollouts", 100 * waits, "%", _SOURCE),
            *(
                Evidence(f"of weight syncs, {name}", 100 * s / found.syncs.seconds, "%", "spans")
                for name, s in parts.items()
                if s is not None
            ),
            *view.phase_evidence("sync"),
        ),
        cause=f"For {percent(waits)} of the weight syncs some trajectory still generates or calls "
        "a tool: the sync waits for the slowest of them, not for the transfer.",
        fixes=(fix,),
    )
