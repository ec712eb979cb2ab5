"""Reads small JSON files of a run directory, tolerating what a killed writer leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def read_object(path: Path) -> tuple[dict[str, Any], str | None]:
    """The JSON object in `path`, or an empty one and what is wrong with the file.

    A file that is not there is no problem: None. Callers say in the report what was wrong.
    """
    try:
        value = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}, None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        return {}, f"{path.name}: {problem}"
    if not isinstance(value, dict):
        return {}, f"{path.name}: holds no JSON object"
    return value, None


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects of an append-only file, and how many lines are damaged.

    A last line without its newline is a write in progress or cut off: it counts as damaged only
    if it does not parse.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError:
        return [], 1
    rows: list[dict[str, Any]] = []
    damaged = 0
    decoder = msgspec.json.Decoder(dict[str, Any])
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            damaged += 1
    return rows, damaged
