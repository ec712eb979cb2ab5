"""Values of settings: parsed from a job, and formatted for a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from grpo_doctor.knobs.model import Kind, Spelling

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_NOTHING = frozenset({"", "none", "null"})


def parse(kind: Kind, raw: Any) -> Any:
    """`raw` as the setting's type; None if it is unset or not of that type."""
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NOTHING):
        return None
    if isinstance(raw, (list, tuple)):
        if not raw:
            return None
        raw = raw[0] if len(raw) == 1 else " ".join(str(item) for item in raw)
    try:
        return _PARSERS[kind](raw)
    except (TypeError, ValueError, OverflowError):
        return None


def ours(spelling: Spelling, kind: Kind, raw: Any) -> Any:
    """Return the canonical value of what this option says; None where it says nothing known."""
    if spelling.inside is not None:
        contents = _contents(raw)
        raw = None if contents is None else contents.get(spelling.inside)
    if spelling.item is not None:
        words = raw if isinstance(raw, (list, tuple)) else str(raw or "").split()
        raw = words[spelling.item] if len(words) > spelling.item else None
    if not spelling.values:
        return parse(kind, raw)
    if raw is None:  # unset is not `null`
        return None
    return next((own for own, text in spelling.values if _plain(text) == _plain(raw)), None)


def theirs(spelling: Spelling, value: Any) -> tuple[Any] | None:
    """Return what this option takes for a canonical value; None where it has no such value."""
    if not spelling.values:
        return (value,)
    return next(
        ((text,) for own, text in spelling.values if own == value and type(own) is type(value)),
        None,
    )


def off(kind: Kind) -> Any:
    """Return the value that stands for a gate that is shut."""
    return {"bool": False, "int": 0, "float": 0.0, "str": "none", "words": ""}[kind]


def spelled(value: Any) -> str:
    """Return a value as a command line takes it: `true`, `0.6`, `zero3`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = f"[{','.join(str(item) for item in value)}]"
    text = spelled(value).lower()
    return "".join(c for c in text if c not in " '\"")


def _contents(raw: Any) -> Mapping[str, Any] | None:
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            return None
    return raw if isinstance(raw, Mapping) else None


def _to_bool(raw: Any) -> bool | None:
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _to_int(raw: Any) -> int | None:
    number = float(raw)
    return int(number) if number.is_integer() else None


def _to_float(raw: Any) -> float | None:
    number = float(raw)
    return number if number - number == 0 else None  # neither infinite nor NaN


def _to_str(raw: Any) -> str | None:
    return None if isinstance(raw, Mapping) else str(raw).strip()


_PARSERS: dict[Kind, Any] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "str": _to_str,
    "words": _to_str,
}
