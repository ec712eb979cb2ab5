"""Read the predicted sets of fixes, and put each into words; nothing is predicted here."""

from __future__ import annotations

from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.reader import Node
from grpo_doctor_reports.text_safety import PROSE_LIMIT
from grpo_doctor_reports.whatif_model import UnknownFix, WhatIf, WhatIfFix, WhatIfSet

_FIXES: Final = 12
_SETS: Final = 4_096
_FASTEST_PCT: Final = -100.0


def read_whatif(node: Node) -> WhatIf | None:
    """Return the sets, None where the document predicts and withholds nothing."""
    unknown = [_read_unknown(item) for item in node.nodes("unknown")]
    fixes = [_read_fix(item, at) for at, item in enumerate(node.nodes("fixes")[:_FIXES])]
    sets = [found for item in node.nodes("sets")[:_SETS] if (found := _read_set(item)) is not None]
    if not fixes and not unknown:
        return None
    return WhatIf(
        step_time_s=node.number("step_time_s"),
        steps=node.integer("steps"),
        law_error_pct=node.number("law_error_pct"),
        fixes=fixes,
        sets=sets,
        unknown=unknown,
        note=node.text("note", PROSE_LIMIT),
    )


def best_set(whatif: WhatIf) -> tuple[int, ...]:
    """Return the fixes of the shortest predicted step, the smallest such set; none: ()."""
    shortest = min(whatif.sets, key=lambda one: (one.mid, len(one.fixes)), default=None)
    return shortest.fixes if shortest and shortest.mid < 0 else ()


def whatif_facts(whatif: WhatIf) -> dict[str, Any]:
    """Return every set in words by its fixes (`0,2`), as the script looks it up."""
    return {
        "now": formatting.seconds(whatif.step_time_s),
        "sets": {",".join(map(str, one.fixes)): set_words(one, whatif) for one in whatif.sets},
        "spellings": {str(fix.index): fix.spelling for fix in whatif.fixes},
    }


def set_words(one: WhatIfSet, whatif: WhatIf) -> dict[str, Any]:
    """Return a set's step time, interval and change as text, and as fractions of the step now."""
    low, high = (one.low, one.high) if None not in (one.low, one.high) else (one.mid, one.mid)
    return {
        "time": _time(one.mid, whatif),
        "interval": f"{_time(low, whatif)} to {_time(high, whatif)}" if low != high else "",
        "change": formatting.signed_percent(one.mid),
        "range": f"{formatting.signed_percent(low)} to {formatting.signed_percent(high)}",
        "low": _fraction(low),
        "mid": _fraction(one.mid),
        "high": _fraction(high),
    }


def _time(change_pct: float | None, whatif: WhatIf) -> str:
    if whatif.step_time_s is None or change_pct is None:
        return formatting.NOTHING
    return formatting.seconds(whatif.step_time_s * _fraction(change_pct))


def _fraction(change_pct: float | None) -> float:
    return round(1 + max(_FASTEST_PCT, change_pct or 0.0) / 100, 5)


def _read_fix(node: Node, at: int) -> WhatIfFix:
    return WhatIfFix(
        index=node.integer("index", at),
        finding=node.text("finding"),
        label=node.text("label", PROSE_LIMIT),
        spelling=node.block("spelling"),
    )


def _read_set(node: Node) -> WhatIfSet | None:
    mid = node.number("mid")
    if mid is None:
        return None
    fixes = tuple(sorted(set(node.integers("fixes"))))
    return WhatIfSet(fixes=fixes, low=node.number("low"), mid=mid, high=node.number("high"))


def _read_unknown(node: Node) -> UnknownFix:
    return UnknownFix(
        finding=node.text("finding"),
        label=node.text("label", PROSE_LIMIT) or node.text("fix", PROSE_LIMIT),
        reason=node.text("reason", PROSE_LIMIT),
    )


def joint_words(whatif: WhatIf, fixes: tuple[int, ...]) -> dict[str, Any] | None:
    """Return a set in words, None where it was not predicted."""
    found = next((one for one in whatif.sets if one.fixes == fixes), None)
    return None if found is None else set_words(found, whatif)


def alone_words(whatif: WhatIf, fix: WhatIfFix) -> dict[str, Any] | None:
    """Return what one fix brings by itself."""
    return joint_words(whatif, (fix.index,))


def joint_flags(whatif: WhatIf, fixes: tuple[int, ...]) -> str:
    """Return what to type for all of them: flags on one line, all else on lines of its own."""
    spellings = [fix.spelling for fix in whatif.fixes if fix.index in fixes and fix.spelling]
    flags = [one for one in spellings if _is_flag(one)]
    others = [one for one in spellings if not _is_flag(one)]
    return "\n".join([*([" ".join(flags)] if flags else []), *others])


def _is_flag(spelling: str) -> bool:
    return spelling.startswith("-") and "\n" not in spelling
