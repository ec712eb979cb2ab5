"""What the processes of a job tell the bench: lines in a file, so that telling never blocks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_S = 0.02
FILE = "events"


@dataclass(frozen=True)
class Event:
    """`at_s` is CLOCK_MONOTONIC."""

    name: str
    rank: int
    pid: int
    at_s: float
    more: dict[str, Any]


class Silence(Exception):  # noqa: N818 - it says what happened
    """An event that was waited for did not come."""


def tell(folder: Path, name: str, rank: int, **more: Any) -> None:
    """Appends one event; one write of a line, which no other process can split."""
    line = json.dumps([name, rank, os.getpid(), time.monotonic(), more]) + "\n"
    file = os.open(folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def events_in(folder: Path) -> list[Event]:
    """All events so far."""
    try:
        lines = (folder / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Event(*json.loads(line)) for line in lines]


def wait_for(
    folder: Path, condition: Callable[[list[Event]], bool], what: str, at_most_s: float
) -> list[Event]:
    """Waits until the events are as wanted.

    Raises:
        Silence: they were not in time; says what was told instead.
    """
    deadline = time.monotonic() + at_most_s
    while True:
        events = events_in(folder)
        if condition(events):
            return events
        if time.monotonic() > deadline:
            recent = ", ".join(f"{e.name}({e.rank})" for e in events[-12:])
            raise Silence(f"no {what} within {at_most_s:.0f} s; events: {recent or 'none'}")
        time.sleep(POLL_S)


def count(events: list[Event], name: str, rank: int | None = None) -> int:
    """How many events of this name there are, of one rank or of all."""
    return sum(1 for e in events if e.name == name and rank in (None, e.rank))
