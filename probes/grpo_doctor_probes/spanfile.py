"""The writer of one span file: a mapped header and mapped, pre-allocated segments."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from typing import NamedTuple

from grpo_doctor_probes import layout

DEFAULT_MAX_MB = 256
_FIRST_RECORD = layout.SEGMENT_HEADER_BYTES
_RETRY_AFTER_NS = 1_000_000_000


class Segment(NamedTuple):
    """Where records go now. `claim` hands out byte offsets; it and `memory` belong together, so
    a thread that claimed a place before the segment was exchanged still writes to the right one."""

    claim: itertools.count[int]
    memory: mmap.mmap | bytearray
    kept: bool


class SpanFile:
    """Creates and grows `path`; raises OSError only from the constructor.

    Args:
        path: must not exist: a second run into the same folder never overwrites the first.
        rank: written into the header.
        max_bytes: size at which the oldest records make room for new ones.
    """

    def __init__(self, path: str, rank: int, max_bytes: int) -> None:
        self.path = path
        self.rank = rank
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._maps: list[mmap.mmap] = []
        self._sequence = 0
        self._retry_at_ns = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _allocate(self._file, 0, layout.HEADER_BYTES)
            self.header = mmap.mmap(self._file, layout.HEADER_BYTES)
        except OSError:
            os.close(self._file)
            os.unlink(path)  # noqa: PTH108 - pathlib costs 8 ms of import in the job
            raise
        self.state = memoryview(self.header)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
        layout.FIXED.pack_into(
            self.header,
            0,
            layout.MAGIC,
            layout.VERSION,
            layout.HEADER_BYTES,
            layout.SEGMENT_BYTES,
            layout.SEGMENT_RECORDS,
            os.getpid(),
            rank,
            time.monotonic_ns(),
            time.time_ns(),
        )
        self.segment = self._open_next_segment()

    def exchange(self, full: Segment) -> Segment:
        """Replaces the segment that a caller found full; returns the one to write to now.

        A segment without memory behind it (`kept` false) counts what is lost; a new one is asked
        for at most once a second, because a full disk may get room again.
        """
        with self._lock:
            if self.segment is full:
                if full.kept or time.monotonic_ns() >= self._retry_at_ns:
                    self.segment = self._open_next_segment()
                if not self.segment.kept:
                    self.state[layout.STATE_DROPPED] += 1
            return self.segment

    def add_name(self, name: bytes) -> bool:
        """Appends a name; its id is its position from 1. False if the table is full."""
        with self._lock:
            end = self._names_end()
            if end + layout.NAME_LENGTH.size + len(name) > layout.HEADER_BYTES:
                return False
            layout.NAME_LENGTH.pack_into(self.header, end, len(name))
            start = end + layout.NAME_LENGTH.size
            self.header[start : start + len(name)] = name
            self.state[layout.STATE_NAMES] += 1
            return True

    def _names_end(self) -> int:
        offset = layout.NAMES_OFFSET
        for _ in range(self.state[layout.STATE_NAMES]):
            (length,) = layout.NAME_LENGTH.unpack_from(self.header, offset)
            offset += layout.NAME_LENGTH.size + length
        return offset

    def _open_next_segment(self) -> Segment:
        count = len(self._maps)
        offset = layout.HEADER_BYTES + count * layout.SEGMENT_BYTES
        room = offset + layout.SEGMENT_BYTES <= self.max_bytes or count < 2
        if room:
            try:
                _allocate(self._file, offset, layout.SEGMENT_BYTES)
                memory = mmap.mmap(self._file, layout.SEGMENT_BYTES, offset=offset)
            except OSError:
                self._retry_at_ns = time.monotonic_ns() + _RETRY_AFTER_NS
                # No memory: every claim is past the end, so that each record asks again.
                return Segment(itertools.count(layout.SEGMENT_BYTES), bytearray(), kept=False)
            self._maps.append(memory)
        else:
            memory = self._recycle()
        self._sequence += 1
        layout.SEGMENT_HEADER.pack_into(memory, 0, layout.SEGMENT_MAGIC, self._sequence)
        self.state[layout.STATE_SEGMENTS] = len(self._maps)
        claim = itertools.count(_FIRST_RECORD, layout.RECORD_BYTES)
        return Segment(claim, memory, kept=True)

    def _recycle(self) -> mmap.mmap:
        """The oldest segment after the first: the start of a run is worth keeping."""
        memory = self._maps.pop(1)
        self._maps.append(memory)
        memory[:] = bytes(layout.SEGMENT_BYTES)
        self.state[layout.STATE_DROPPED] += layout.SEGMENT_RECORDS
        return memory

    def close(self) -> None:
        """Marks an orderly end. The mapping stays: late threads may still write."""
        self.state[layout.STATE_CLOSED_NS] = time.monotonic_ns()


def _allocate(file: int, offset: int, size: int) -> None:
    """Gives the range real blocks now; a sparse page would be a SIGBUS when the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, offset, size)
    else:  # macOS
        os.pwrite(file, bytes(size), offset)
