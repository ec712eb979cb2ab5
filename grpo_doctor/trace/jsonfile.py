"""Reads small JSON files of a run directory, tolerating what a killed writer leaves."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

# What msgspec raises for text that is not JSON, not UTF-8, or nested a thousand levels deep.
# Its ValidationError, for JSON of other types than asked for, is a DecodeError.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What Python's json module writes for numbers that JSON does not have.
BARE_NAN = re.compile(rb"(?<=[:\[,])\s*-?(?:NaN|Infinity)(?=\s*[,}\]])")
MAX_WHOLE = 1 << 62
# Times since boot, 36 years: sums and differences of a few of them fit 64 bits.
MAX_TIME_NS = 1 << 60
Whole = Annotated[int, msgspec.Meta(ge=-MAX_WHOLE, le=MAX_WHOLE)]
Time = Annotated[int, msgspec.Meta(ge=-MAX_TIME_NS, le=MAX_TIME_NS)]
# A line that crosses a page of the file grows in two steps, microseconds apart on a quiet machine.
_WRITTEN_S = 0.05
_ROW = msgspec.json.Decoder(dict[str, Any])


def read_object(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the JSON object in `path`, or an empty one and what is wrong with the file.

    A file that is not there is no problem: None. Callers say in the report what was wrong.
    """
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}, None
    except OSError as problem:
        return {}, f"{path.name} can't be read: {problem.strerror or problem}"
    except BAD_JSON as problem:
        return {}, f"{path.name} is damaged: {problem}"
    if not isinstance(value, dict):
        return {}, f"{path.name} is damaged: it holds no JSON object"
    return value, None


def read_lines(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Return the JSON objects of an append-only file, and what is wrong with it if anything is.

    A last line without its newline is a write in progress or cut off: it counts as damaged only
    if it does not parse, and is still there after `_WRITTEN_S`.
    """
    try:
        data = path.read_bytes()
        if not _is_whole(data[data.rfind(b"\n") + 1 :].strip()):
            time.sleep(_WRITTEN_S)
            data = path.read_bytes()
    except FileNotFoundError:
        return [], None
    except OSError as problem:
        return [], f"{path.name} can't be read: {problem.strerror or problem}"
    rows: list[dict[str, Any]] = []
    damaged = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            rows.append(_ROW.decode(line))
        except BAD_JSON:
            damaged += 1
    return rows, f"{path.name}: {damaged} damaged lines left out" if damaged else None


def _is_whole(line: bytes) -> bool:
    try:
        return not line or _ROW.decode(line) is not None
    except BAD_JSON:
        return False


def whole(value: object) -> int | None:
    """`value` if it is a whole number that can be counted with, else None."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WHOLE:
        return value
    return None


def moment(value: object) -> int | None:
    """`value` if it can be a time on a monotonic clock in nanoseconds, else None."""
    time_ns = whole(value)
    return time_ns if time_ns is not None and 0 <= time_ns <= MAX_TIME_NS else None


def number(value: object) -> float:
    """`value` as a number, also if it is one of the strings "nan", "inf" and "-inf"; else NaN."""
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return float("nan")


def object_in(text: str | bytes) -> dict[str, Any]:
    """The JSON object that a text is; an empty one where it is another value, damaged or cut."""
    try:
        return mapping(msgspec.json.decode(text))
    except BAD_JSON:
        return {}


def mapping(value: object) -> dict[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def texts(value: object) -> tuple[str, ...]:
    """Return the items of a list as text; nothing if it is not a list."""
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def text_or_none(value: object) -> str | None:
    """`value` as text, None if there is none."""
    return None if value is None else str(value)
