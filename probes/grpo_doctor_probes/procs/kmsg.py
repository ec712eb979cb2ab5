"""The kernel's log. Format: ABI/testing/dev-kmsg; clock: CLOCK_MONOTONIC, less NTP's
corrections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

KMSG = Path("/dev/kmsg")
_RECORD_BYTES = 8192
_MOST_RECORDS = 1 << 18  # over those of the largest log, 32 MB: messages may come for ever


def records(path: Path = KMSG) -> Iterator[bytes]:
    """All records, oldest first. Raises OSError; PermissionError: the log is hidden from us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:  # that was the newest
                return
            except BrokenPipeError:  # overwritten while we read: go on with the next
                continue
            if not record:
                return
            yield record
    finally:
        os.close(descriptor)


def parse_record(record: bytes) -> tuple[float, bytes] | None:
    """Time in s and text of `priority,sequence,microseconds,flags;text`; None for other lines.

    Lines that follow the first begin with a blank and only repeat it for machines.
    """
    head, semicolon, body = record.partition(b";")
    words = head.split(b",")
    if not semicolon or len(words) < 3 or not words[2].isdigit():
        return None
    return int(words[2]) / 1e6, body.partition(b"\n")[0]
