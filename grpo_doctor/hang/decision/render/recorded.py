"""Verdicts on flight recordings without processes that show no culprit."""

from __future__ import annotations

from grpo_doctor.hang.causes.calls import INSPECT
from grpo_doctor.hang.decision.render.stalled import RECORDERS_OFF, recorders_are_off
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.verdict import Fix, Verdict
from grpo_doctor.hang.wording import ranks_text, sentence, verb


def without_culprit(view: JobView) -> Verdict:
    """Return healthy where all recordings agree; unknown where some can't be used."""
    unusable = view.recordings.unusable
    waiting = tuple(sorted(view.waiting))
    awaited = sorted({rank for wait in view.matching.waits for rank in wait.on} & unusable)
    if not view.matching.heard:
        return _unknown("no recording could be used")
    if recorders_are_off(view):
        off = _unknown("the recordings have no entries, so attach cannot judge the job")
        return Verdict(
            state=off.state,
            cause=off.cause,
            summary=off.summary,
            confirm=(INSPECT,),
            fixes=(Fix(RECORDERS_OFF),),
        )
    if waiting and view.wait_history.unusual():
        whom, why = "other ranks", "and the recordings do not show why"
        if awaited:
            whom, why = ranks_text(awaited), "whose recording can't be used"
        return Verdict(
            state="stuck",
            cause="unknown",
            victims=waiting,
            summary=sentence(f"{ranks_text(waiting)} {verb(waiting, 'waits')} for {whom}, {why}"),
        )
    text = "no rank is missing from a collective, and all ranks agree on their calls"
    if waiting:
        waits = view.wait_history.text()
        text = f"ranks wait for other ranks ({waits}), which is not long for this job"
    if unusable:
        unread = ranks_text(sorted(unusable))
        return _unknown(f"there is no usable recording of {unread}; otherwise {text}")
    return Verdict(state="healthy", cause="", summary=sentence(text))


def _unknown(summary: str) -> Verdict:
    return Verdict(state="slow", cause="unknown", summary=sentence(summary))
