"""What a matching alone allows to say: for dumps of a job that is gone, or runs elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.hang.limits import LEAST_ENTRIES, LIMITS
from grpo_doctor.hang.model.matching.model import Blame, Matching, Reason, Ruling
from grpo_doctor.hang.model.matching.words import ranks_text, seconds_text

CAUSES: dict[Reason, str] = {
    "device-hung": "gpu-fault",
    "not-arrived": "unknown",  # it is somewhere else; the recordings do not say where
    "other-op": "collective-mismatch",
    "other-size": "collective-mismatch",
    "other-type": "collective-mismatch",
    "extra": "collective-mismatch",
    "skipped": "collective-skipped",
    "fewer-batches": "collective-skipped",
    "out-of-order": "group-order-cycle",
    "not-sent": "p2p-unmatched",
    "not-received": "p2p-unmatched",
    "not-recorded": "rank-missing",
}
SECOND_NS = 1_000_000_000
SELF_EVIDENT = frozenset({"other-op", "other-size", "other-type"})


def judge(matching: Matching) -> Ruling:
    """Return the verdict of the recordings, without inspection of any process.

    A rank that is merely behind is no fault while the wait is short for this job, and a call that
    does not fit those of the others is one however short. Without a time to go by, when files were
    copied, a wait counts as long.
    """
    waits_ns, unusual = _waiting(matching)
    leading = _leading(matching.blame)
    if unusual is False:
        leading = [blame for blame in leading if blame.reason in SELF_EVIDENT]
    if not leading:
        return _nobody(matching, waits_ns, unusual)
    culprits = tuple(sorted(blame.rank for blame in leading))
    victims = tuple(sorted({wait.rank for wait in matching.waits} - set(culprits)))
    return Ruling(
        cause=CAUSES[leading[0].reason],
        culprits=culprits,
        victims=victims,
        either=leading[0].grounds == "either" and len(leading) > 1,
        grounds=leading[0].grounds,
        seconds=None if waits_ns is None else waits_ns / SECOND_NS,
        unusual=unusual,
        summary=_summary(leading, victims, waits_ns),
        facts=(
            *((blame.rank, blame.text) for blame in leading),
            *((None, text) for text in _rings(matching)),
        ),
    )


def _leading(blames: Sequence[Blame]) -> list[Blame]:
    """Return all that are to blame for something; alternatives only where there is no other."""
    return [blame for blame in blames if blame.grounds != "either"] or list(blames)


def _waiting(matching: Matching) -> tuple[int | None, bool | None]:
    """Return for how long the job had stood still when the dumps were taken, and whether that is
    long for it: the rank that waits least shows it, for it moved last.
    """
    still = _still_ns(matching)
    if any(status.timed_out for status in matching.statuses):
        return still, True
    if matching.moved:
        return still, False
    if still is None:
        return None, None
    longest = max((r.longest_gap_ns or 0 for r in matching.paces), default=0)
    entries = max((r.entries for r in matching.paces), default=0)
    history = entries >= LEAST_ENTRIES and matching.familiar
    limit = LIMITS["asleep"]
    return still, limit.exceeded(still / SECOND_NS, longest / SECOND_NS, history=history)


def _still_ns(matching: Matching) -> int | None:
    times = [still for r in matching.paces if (still := r.still_for_ns()) is not None]
    return min(times, default=None)


def _nobody(matching: Matching, waits_ns: int | None, unusual: bool | None) -> Ruling:
    """Return the ruling where no rank is behind, or none is late yet."""
    seconds = None if waits_ns is None else waits_ns / SECOND_NS
    together = [status for status in matching.statuses if status.kind == "all-joined-none-done"]
    if together and unusual:
        members = tuple(sorted({r for status in together for r in status.arrived}))
        text = (
            f"All members reached {together[0].operation} of the {together[0].group.title()} "
            f"and agree on it, but none has finished it{_for(waits_ns)}: the network or a "
            "device blocks it."
        )
        return Ruling("network-silent", (), members, False, None, seconds, True, text)
    if not matching.heard:
        return Ruling("unknown", summary="No recording could be used.")
    text = "No rank is missing from a collective, and all ranks agree on their calls."
    if matching.waits:
        text = f"Ranks wait for each other{_for(waits_ns)}, which is not long for this job."
    return Ruling("", seconds=seconds, unusual=unusual, summary=text)


def _for(waits_ns: int | None) -> str:
    return "" if waits_ns is None else f" after {seconds_text(waits_ns)}"


def _summary(leading: list[Blame], victims: tuple[int, ...], waits_ns: int | None) -> str:
    if len(leading) == 1:
        return leading[0].text
    culprits = ranks_text(blame.rank for blame in leading)
    if leading[0].grounds == "either":
        return f"One of {culprits} is wrong; the recordings do not show which. {leading[0].text}"
    waiting = f" {ranks_text(victims).capitalize()} wait{_for(waits_ns)}." if victims else ""
    return f"The cause is on {culprits}.{waiting} {leading[0].text}"


def _rings(matching: Matching) -> list[str]:
    titles = {status.group.key: status.group.title() for status in matching.statuses}
    return [
        "Ranks wait in a cycle: "
        + "; ".join(
            f"rank {wait.rank} in {wait.operation} of the {titles.get(wait.group, wait.group)} "
            f"for rank {following}"
            for wait, following in zip(ring.waits, (*ring.ranks[1:], ring.ranks[0]))
        )
        + "."
        for ring in matching.cycles
    ]
