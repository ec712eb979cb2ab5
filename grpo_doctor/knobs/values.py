"""Values of knobs: from what a job said, and back into what a command line takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_doctor.knobs.model import Kind

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_NOTHING = frozenset({"", "none", "null"})


def parse(kind: Kind, raw: Any) -> Any:
    """`raw` as the knob's type; None where it is unset or is not of that type."""
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NOTHING):
        return None
    if isinstance(raw, (list, tuple)):
        raw = raw[0] if len(raw) == 1 else " ".join(str(item) for item in raw)
    try:
        return _PARSERS[kind](raw)
    except (TypeError, ValueError, OverflowError):
        return None


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
}


def spelled(value: Any) -> str:
    """A value as a command line takes it: `true`, `0.6`, `zero3`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def options_of(argv: Sequence[str]) -> dict[str, Any]:
    """The options of a command line such as `swift rlhf --use_vllm true --reward_funcs a b`.

    Returns the option's name without dashes, and its text; a list where it takes several, True
    where it takes none. Words before the first option are left out.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            current = found[name.replace("-", "_")] = [value] if equals else []
        elif current is not None:
            current.append(word)
    return {
        name: True if not words else words[0] if len(words) == 1 else words
        for name, words in found.items()
    }
