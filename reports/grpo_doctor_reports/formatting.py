"""Numbers for people: `1.2 s`, `340 ms`, `12.3 GiB`, `61%`. None is an en dash everywhere.

Make a stranger's text safe to show: visible, one line, bounded.

A report is drawn from names that came out of other people's processes. Escaping for HTML is the
template engine's job; what is left is text that is harmless as markup and still lies to the reader:
terminal escapes, right-to-left overrides, zero-width characters, lone surrogates, endless lines.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

NAME_LIMIT = 200
PROSE_LIMIT = 2_000

_LINE_BREAKS = frozenset("\n\r\v\f\x85\u2028\u2029")
_CONTROL_PICTURES_START = 0x2400
_DELETE = 0x7F
_DELETE_PICTURE = "\u2421"


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """Return `text` on one line, at most `limit` characters, every invisible character visible."""
    return _visible(_cut(text, limit), keep_newlines=False)


def clean_block(text: str, limit: int = PROSE_LIMIT) -> str:
    """Return `text` like `clean`, but with its line breaks kept as newlines."""
    unified = _cut(text, limit).replace("\r\n", "\n")
    return _visible(unified, keep_newlines=True).strip("\n")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _visible(text: str, *, keep_newlines: bool) -> str:
    if text.isprintable():
        return text
    return "".join(_visible_character(character, keep_newlines) for character in text)


def _visible_character(character: str, keep_newlines: bool) -> str:
    if character.isprintable():
        return character
    if character in _LINE_BREAKS:
        return "\n" if keep_newlines else " "
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    return _picture(character)


def _picture(character: str) -> str:
    code = ord(character)
    if unicodedata.category(character) == "Cs":
        return "\ufffd"
    if code < 0x20:
        return chr(_CONTROL_PICTURES_START + code)
    return _DELETE_PICTURE if code == _DELETE else f"⟨U+{code:04X}⟩"


NOTHING: Final = "–"  # noqa: RUF001 (an en dash is what an empty cell shows)
MINUS: Final = "\u2212"

_MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400
_SECONDS_BELOW_S = 120  # up to two minutes people compare seconds; above, "2 min 14 s"
_EXPONENT_FROM = 1e15
_LARGEST = 2**63
_MOST_DECIMALS = 6
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None, digits: int = 3) -> str:
    """Return whole numbers in full, others with `digits` significant digits, thousands grouped."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= _EXPONENT_FROM:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    if value == int(value) or abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace("-", MINUS)
    rounded = float(f"{value:.{digits - 1}e}")  # 9.996 becomes 10, which has one digit fewer
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    if decimals > _MOST_DECIMALS:
        return f"{value:.{digits - 1}e}".replace("-", MINUS)
    return f"{rounded:.{max(0, decimals)}f}".replace("-", MINUS)


def seconds(value_s: float | None) -> str:
    """Return a duration in the unit a person would use."""
    if value_s is None or not math.isfinite(value_s):
        return NOTHING
    if value_s < 0:
        return MINUS + seconds(-value_s)
    if value_s < _SECONDS_BELOW_S:
        return _short_seconds(value_s)
    total = round(value_s)
    if total < 2 * _HOUR_S:
        return f"{total // _MINUTE_S} min {total % _MINUTE_S:02d} s"
    if total < 2 * _DAY_S:
        return f"{total // _HOUR_S} h {total % _HOUR_S // _MINUTE_S:02d} min"
    return f"{total // _DAY_S} d {total % _DAY_S // _HOUR_S} h"


def _short_seconds(value_s: float) -> str:
    if value_s == 0:
        return "0 s"
    if value_s < 0.9995e-3:
        return f"{number(value_s * 1e6)} µs"
    if value_s < 0.9995:
        return f"{number(value_s * 1e3)} ms"
    return f"{number(value_s)} s"


def percent(value_pct: float | None) -> str:
    """Return a percentage; below 10 with one decimal, tiny ones as `<0.1%`."""
    if value_pct is None or not math.isfinite(value_pct):
        return NOTHING
    if 0 < abs(value_pct) < 0.1:
        return "<0.1%"
    is_whole = abs(value_pct - round(value_pct)) < 1e-9  # 0.07 * 100 is 7.000000000000001
    decimals = 1 if abs(value_pct) < 9.95 and not is_whole else 0
    return f"{value_pct:.{decimals}f}%".replace("-", MINUS)


def share(fraction: float | None) -> str:
    """Return a fraction (0 to 1) as a percentage."""
    return percent(None if fraction is None else fraction * 100)


def signed_percent(value_pct: float | None) -> str:
    """Return a change in percent with its sign, a true minus for a decrease."""
    shown = percent(value_pct)
    return f"+{shown}" if value_pct is not None and value_pct > 0 else shown


def size(value_bytes: float | None) -> str:
    """Return a number of bytes in binary units."""
    if value_bytes is None or not math.isfinite(value_bytes):
        return NOTHING
    exponent = byte_exponent(value_bytes)
    return f"{number(value_bytes / 1024**exponent)} {_BYTE_UNITS[exponent]}"


def byte_exponent(value_bytes: float) -> int:
    """Return n such that 1024**n is the unit in which `value_bytes` reads best (0 B to 5 PiB)."""
    if abs(value_bytes) < 1:
        return 0
    return min(len(_BYTE_UNITS) - 1, int(math.log(abs(value_bytes), 1024) + 1e-9))


def byte_unit(exponent: int) -> str:
    """Return the name of 1024**exponent bytes."""
    return _BYTE_UNITS[exponent]


def compact(value: float | None) -> str:
    """Return a large number as `5.23k` or `1.2M`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    for divisor, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= divisor:
            return number(value / (1e3 if suffix == "k" else divisor)) + suffix
    return number(value)


def count(value: int, noun: str, plural: str | None = None) -> str:
    """Return `1 rank` or `8 ranks`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def listed(items: Sequence[str], most: int) -> str:
    """Return `a, b and 3 more`: at most so many by name."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def any_value(value: object) -> str:
    """Return a setting's value as safe text: strings as they are, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return f"{value:g}"
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def utc(unix_ns: int | None) -> str:
    """Return a Unix time in nanoseconds as a UTC minute."""
    if not unix_ns:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(unix_ns / 1e9, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return NOTHING
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def int_ranges(values: Iterable[int]) -> str:
    """Return a set of integers as `0-2, 5` (with an en dash)."""
    runs: list[tuple[int, int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return ", ".join(f"{a}" if a == b else f"{a}{NOTHING}{b}" for a, b in runs)


def finite(value: object) -> float | None:
    """Return `value` if it is a number that can be shown, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not isinstance(value, (int, float)) or abs(value) > _LARGEST:
        return None
    return None if math.isnan(value) else value


def quantity(value: float, unit: str) -> str:
    """Return `value` with its unit, both rewritten for people where the unit is a known one."""
    if unit.startswith("% "):  # "% of the step"
        return f"{percent(value)}{unit[1:]}"
    formatted = _FORMATS.get(unit.strip().lower())
    return formatted(value) if formatted else f"{number(value)} {unit}".rstrip()


_FORMATS: Final[dict[str, Callable[[float], str]]] = {
    "s": seconds,
    "seconds": seconds,
    "ms": lambda value: seconds(value / 1e3),
    "us": lambda value: seconds(value / 1e6),
    "ns": lambda value: seconds(value / 1e9),
    "%": percent,
    "pct": percent,
    "percent": percent,
    "fraction": share,
    "share": share,
    "step_time_pct": signed_percent,
    "bytes": size,
    "b": size,
    "bytes/s": lambda value: f"{size(value)}/s",
    "1": number,
    "": number,
}


# From here on a percentage of the time is far from one of the speed: -33% is 1.5x as fast.
LARGE: Final = 1.5
_WHOLE_FROM: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """`2.4x` with its interval: of the speed where `is_faster`, else of the time."""

    is_faster: bool
    low: str
    mid: str
    high: str


def change_ratio(
    change_pct: float | None, low_pct: float | None, high_pct: float | None
) -> Ratio | None:
    """Return a change of time in percent as a ratio; None where it is small, or may be none."""
    if change_pct is None or low_pct is None or high_pct is None:
        return None
    if min(change_pct, low_pct, high_pct) <= -100:  # no time at all is left: no ratio says that
        return None
    is_faster = change_pct < 0
    mid, *ends = (
        1 / times if is_faster else times
        for times in (1 + pct / 100 for pct in (change_pct, low_pct, high_pct))
    )
    if mid < LARGE or min(ends) < 1:
        return None
    return Ratio(is_faster, _shown(min(ends)), _shown(mid), _shown(max(ends)))


def _shown(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= _WHOLE_FROM else f"{ratio:.1f}x"
