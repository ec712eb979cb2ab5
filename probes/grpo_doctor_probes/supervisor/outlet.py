"""Words on a stream that may take no more: a stalled terminal, or a log pipe without a reader.

No message is worth an endless wait: a waiting supervisor passes no signals on, and does not end
with the job.
"""

from __future__ import annotations

import os
import select
import time
from typing import TextIO


class Outlet:
    """Writes to streams, waiting for room for `patience_s` in a row at most.

    Once that was in vain nothing is waited for until the stream takes words again.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._stalled = False

    def write(self, stream: TextIO, text: str) -> bool:
        """Write the text, or as much of it as the stream takes; whether that was all.

        Raises:
            OSError: it has no reader any more.
            ValueError: it is closed.
        """
        if (descriptor := _descriptor(stream)) is None:
            stream.write(text)
            stream.flush()
            return True
        # Beside the stream's own buffer: who hangs in that would hold its lock to the end.
        unwritten = text.encode(stream.encoding or "utf-8", "backslashreplace")
        deadline = time.monotonic() + (0.0 if self._stalled else self._patience_s)
        while unwritten:
            written = _write_some(descriptor, unwritten, max(0.0, deadline - time.monotonic()))
            self._stalled = not written
            if self._stalled:
                return False
            unwritten = unwritten[written:]
            deadline = time.monotonic() + self._patience_s
        return True


def has_room(stream: TextIO | None) -> bool:
    """Return whether something can be written without a wait."""
    descriptor = None if stream is None else _descriptor(stream)
    return descriptor is None or _has_room(descriptor, 0.0)


def _write_some(descriptor: int, content: bytes, within_s: float) -> int:
    """Return how many bytes it took; 0 where there was no room in time."""
    if not _has_room(descriptor, within_s):
        return 0
    try:
        return os.write(descriptor, content[: select.PIPE_BUF])
    except BlockingIOError:  # another writer was faster
        return 0


def _has_room(descriptor: int, within_s: float) -> bool:
    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)
    return bool(ready.poll(within_s * 1000))


def _descriptor(stream: TextIO) -> int | None:
    """None for a stream without one, and a closed one, which says so when it is written to."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
