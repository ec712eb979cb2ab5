"""The writer of one span file: a mapped header and mapped, pre-allocated segments."""

from __future__ import annotations

import errno
import mmap
import os
import time
from _thread import allocate_lock

from grpo_doctor_probes.record import layout, sidecar
from grpo_doctor_probes.record.rundir import SPANS_SUFFIX

DEFAULT_MAX_MB = 256
_RETRY_AFTER_NS = 1_000_000_000
# `mmap` keeps a duplicate of the descriptor for each mapping (until Python 3.13): mapping segments
# one by one would take 1024 descriptors at the default size, which is all that a job may open.
_MAX_SEGMENTS_PER_MAPPING = 32
# Nobody holds the lock for long; a signal handler that interrupted its holder must not wait for it.
_PATIENCE_S = 1.0


TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

# Where records go now: the rows not yet taken, and the columns start_ns, end_ns, value and last
# word of the records' memory (strided views: a store into one costs 35 ns, a `struct.pack_into`
# 190). They belong together, so a thread that took a row before the segment was exchanged still
# writes to the right one. Where there is no memory there are no rows: each record asks for some.
Segment: TypeAlias = "tuple[Iterator[int], memoryview, memoryview, memoryview[float], memoryview]"
_RECORD_WORDS = layout.RECORD_BYTES // 8


def create_span_file(stem: str) -> tuple[str, int]:
    """Return a file that was not there before, and its descriptor. Raises OSError."""
    os.makedirs(os.path.dirname(stem), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - no pathlib in the job
    path = stem
    attempt = 0
    while True:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return path + SPANS_SUFFIX, os.open(path + SPANS_SUFFIX, flags, 0o600)
        except FileExistsError:
            # A forked child, a restarted rank, a second run, in a container with the same pid:
            # each its own file beside the first.
            path = f"{stem}.{os.getpid()}" + (f".{attempt}" if attempt else "")
            attempt += 1


class SpanFile:
    """Grows a file that was just created; raises OSError only from the constructor.

    Args:
        descriptor: the empty file, open for reading and writing; it is closed by `close`.
        rank: written into the header.
        max_bytes: size at which the oldest records make room for new ones.
    """

    def __init__(self, descriptor: int, rank: int, max_bytes: int) -> None:
        segments = (max_bytes - layout.HEADER_BYTES) // layout.SEGMENT_BYTES
        self._max_segments = max(2, segments)
        self._lock = allocate_lock()
        self._descriptor = descriptor
        self._allocated = 0
        self._unused: list[memoryview] = []
        self._used: list[memoryview] = []  # oldest first, but for the first one
        self._sequence = 0
        self._retry_at_ns = 0
        _allocate(descriptor, 0, layout.HEADER_BYTES)
        self.header = mmap.mmap(descriptor, layout.HEADER_BYTES)
        self.state = memoryview(self.header)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
        self._names_end = layout.NAMES_OFFSET
        sizes = (layout.HEADER_BYTES, layout.SEGMENT_BYTES, layout.SEGMENT_RECORDS)
        start = (time.monotonic_ns(), time.time_ns())
        layout.FIXED.pack_into(
            self.header, 0, layout.MAGIC, layout.VERSION, *sizes, os.getpid(), rank, *start
        )
        self.segment = self._next_segment()

    def exchange(self, full: Iterator[int]) -> Segment:
        """Replace the segment whose rows a caller found used up; return the one to use now.

        If that one has no memory, the caller's record is lost, and counted here. New memory is
        then asked for at most once a second, because a full disk may get room again.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            self.state[layout.STATE_DROPPED] += 1
            return _no_segment()
        try:
            rows, *_, words = self.segment
            if rows is full and (words or time.monotonic_ns() >= self._retry_at_ns):
                self.segment = self._next_segment()
            if not self.segment[-1]:
                self.state[layout.STATE_DROPPED] += 1
            return self.segment
        finally:
            self._lock.release()

    def add_name(self, name: bytes) -> int:
        """Append a name; return its id, counted from 1, or 0 if the table is full."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return 0
        try:
            start = self._names_end + layout.NAME_LENGTH.size
            if start + len(name) > layout.HEADER_BYTES:
                return 0
            layout.NAME_LENGTH.pack_into(self.header, self._names_end, len(name))
            self.header[start : start + len(name)] = name
            self._names_end = start + len(name)
            self.state[layout.STATE_NAMES] += 1
            return self.state[layout.STATE_NAMES]
        finally:
            self._lock.release()

    def is_whole(self) -> bool:
        """Whether the file is as long as its mappings: a store beyond its end is a SIGBUS."""
        descriptor = self._descriptor
        if descriptor < 0:
            return False
        mapped = layout.HEADER_BYTES + self._allocated * layout.SEGMENT_BYTES
        return os.fstat(descriptor).st_size >= mapped

    def close(self) -> None:
        """Mark an orderly end. The mappings stay: late threads may still write."""
        if self.is_whole():
            self.state[layout.STATE_CLOSED_NS] = time.monotonic_ns()
        with self._lock:
            self._max_segments = 0  # the number of a closed descriptor soon means another file
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _next_segment(self) -> Segment:
        if not self._unused and self._allocated < self._max_segments:
            self._grow()
        if self._unused:
            memory = self._unused.pop()
        elif self._allocated < self._max_segments or self._descriptor < 0:
            self._retry_at_ns = time.monotonic_ns() + _RETRY_AFTER_NS
            return _no_segment()
        else:
            memory = self._recycle()
        self._used.append(memory)
        self._sequence += 1
        layout.SEGMENT_HEADER.pack_into(memory, 0, layout.SEGMENT_MAGIC, self._sequence)
        self.state[layout.STATE_SEGMENTS] = len(self._used)
        return _segment(memory)

    def _grow(self) -> None:
        """Allocates as many segments as there are already, or as many as there is room for."""
        count = min(max(1, self._allocated), _MAX_SEGMENTS_PER_MAPPING)
        count = min(count, self._max_segments - self._allocated)
        offset = layout.HEADER_BYTES + self._allocated * layout.SEGMENT_BYTES
        while count:
            size = count * layout.SEGMENT_BYTES
            try:
                _allocate(self._descriptor, offset, size)
                mapped = memoryview(mmap.mmap(self._descriptor, size, offset=offset))
            except (OSError, ValueError):
                count //= 2
                continue
            starts = range(0, size, layout.SEGMENT_BYTES)
            self._unused = [mapped[at : at + layout.SEGMENT_BYTES] for at in reversed(starts)]
            self._allocated += count
            return

    def _recycle(self) -> memoryview:
        """Return the oldest segment after the first: the start of a run is worth keeping."""
        memory = self._used.pop(1)
        memory[:] = bytes(layout.SEGMENT_BYTES)
        self.state[layout.STATE_DROPPED] += layout.SEGMENT_RECORDS
        return memory


def _segment(memory: memoryview) -> Segment:
    records = memory[layout.SEGMENT_HEADER_BYTES :]
    words, numbers = records.cast("Q"), records.cast("d")
    rows = iter(range(len(words) // _RECORD_WORDS))
    start, end, value, word = (slice(column, None, _RECORD_WORDS) for column in range(4))
    return rows, words[start], words[end], numbers[value], words[word]


def _no_segment() -> Segment:
    return _segment(memoryview(b""))


def _allocate(file: int, offset: int, size: int) -> None:
    """Give the range real blocks now; a sparse page would be a SIGBUS when the disk is full."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        try:
            os.posix_fallocate(file, offset, size)
        except OSError as problem:
            if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
        else:
            return
    zeros = memoryview(bytes(size))
    while zeros:
        written = os.pwrite(file, zeros, offset)
        zeros, offset = zeros[written:], offset + written


def encoded_name(key: object) -> bytes:
    """Return a name, or a (name, arguments) pair, as it is in the file."""
    if isinstance(key, tuple):
        name, args = key
        text = f"{name}{layout.ARGS_SEPARATOR}{sidecar.to_json(dict(args))}"
    else:
        text = str(key)
    encoded = text.encode("utf-8", "replace")[: layout.MAX_NAME_BYTES]
    return encoded.decode("utf-8", "ignore").encode()
