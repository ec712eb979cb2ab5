"""The predicted sets of fixes in words; nothing is predicted here."""

from __future__ import annotations

from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.findings import WhatifEntry, WhatifFix, WhatifSet

_FASTEST_PCT: Final = -100.0


def together_words(whatif: WhatifEntry) -> str:
    """Return the joint gain of the most severe findings' fixes; empty for one fix."""
    ids = [fix.finding for fix in whatif.fixes if fix.index in whatif.together]
    words = joint_words(whatif, whatif.together) if len(ids) > 1 else None
    if words is None:
        return ""
    named = f"{', '.join(ids[:-1])} and {ids[-1]}"
    both = "both" if len(ids) == 2 else f"all {len(ids)}"
    return (
        f"{named}, {both} fixed: {words['now']} → {words['time']} per step, "
        f"{words['change']} ({words['range']})"
    )


def same_gain(whatif: WhatifEntry, fix: WhatifFix) -> str:
    """Return an earlier fix that removes the same time as this one; empty without one."""
    mids = {tuple(joint.fixes): joint.mid or 0.0 for joint in whatif.sets}
    own = mids.get((fix.index,), 0.0)
    for other in whatif.fixes:
        both, before = mids.get((other.index, fix.index)), mids.get((other.index,), 0.0)
        if both is not None and own < -1 and both > min(before, own) - 1 and before < own / 2:
            return other.spelling or other.label
    return ""


def whatif_facts(whatif: WhatifEntry) -> dict[str, Any]:
    """Return every set in words by its fixes (`0,2`), as the script looks it up."""
    return {
        "now": formatting.seconds(whatif.step_time_s),
        "sets": {
            ",".join(map(str, joint.fixes)): set_words(joint, whatif)
            for joint in whatif.sets
            if joint.mid is not None
        },
        "texts": {str(fix.index): fix.spelling for fix in whatif.fixes},
    }


def set_words(joint: WhatifSet, whatif: WhatifEntry) -> dict[str, Any]:
    """Return a set's step time, interval and change as text, and as fractions of the step now."""
    low, high = (
        (joint.low, joint.high) if None not in (joint.low, joint.high) else (joint.mid, joint.mid)
    )
    return {
        "now": formatting.seconds(whatif.step_time_s),
        "time": _time(joint.mid, whatif),
        "interval": f"{_time(low, whatif)} to {_time(high, whatif)}" if low != high else "",
        "change": formatting.signed_percent(joint.mid),
        "range": f"{formatting.signed_percent(low)} to {formatting.signed_percent(high)}",
        "low": _fraction(low),
        "mid": _fraction(joint.mid),
        "high": _fraction(high),
    }


def _time(change_pct: float | None, whatif: WhatifEntry) -> str:
    if whatif.step_time_s is None or change_pct is None:
        return formatting.NOTHING
    return formatting.seconds(whatif.step_time_s * _fraction(change_pct))


def _fraction(change_pct: float | None) -> float:
    return round(1 + max(_FASTEST_PCT, change_pct or 0.0) / 100, 5)


def joint_words(whatif: WhatifEntry, fixes: list[int]) -> dict[str, Any] | None:
    """Return a set in words, None where it was not predicted."""
    predicted = (joint for joint in whatif.sets if joint.mid is not None)
    chosen = next((joint for joint in predicted if joint.fixes == fixes), None)
    return None if chosen is None else set_words(chosen, whatif)


def joint_flags(whatif: WhatifEntry, fixes: list[int]) -> str:
    """Return what to type for all of them: flags on one line, all else on lines of its own."""
    texts = [fix.spelling for fix in whatif.fixes if fix.index in fixes and fix.spelling]
    flags = [spelling for spelling in texts if _is_flag(spelling)]
    commands = [spelling for spelling in texts if not _is_flag(spelling)]
    return "\n".join([*([" ".join(flags)] if flags else []), *commands])


def _is_flag(spelling: str) -> bool:
    return spelling.startswith("-") and "\n" not in spelling
