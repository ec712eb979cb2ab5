"""Reads `trace.json` back: typed, into columns, without the text of its events.

The spans are read from their columns; the events, which are for viewers, are looked at only to
know whether the file is whole."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.columns import SpanTable
from grpo_doctor.trace.head import Facts, FormatHead, Head, trace_from
from grpo_doctor.trace.jsonfile import BAD_JSON, BARE_NAN
from grpo_doctor.trace.merge import merge
from grpo_doctor.trace.model import FORMAT, Trace
from grpo_doctor.trace.packed import PackedSpans
from grpo_doctor.trace.write import EVENTS_LINE
from grpo_doctor_probes.record.rundir import TRACE_JSON

_BLOCK_BYTES = 4 << 20
# All that is read before the events begin; 64 GPUs sampled for a day are 100 MB of series.
_MAX_HEAD_BYTES = 1 << 30
# A gzip bomb expands without end; the largest honest trace seen in tests is 200 MB.
_MAX_BYTES = 16 << 30
_PACKED_BYTES = 64 << 10
_GZIP = b"\x1f\x8b"
_END = re.compile(rb"(?:^|\n)\s*\]\s*\}\s*$")
_END_BYTES = 100
_UTF8_MARK = b"\xef\xbb\xbf"
_OURS = b'"grpoDoctor"'
_KINETO = (b'"deviceProperties"', b'"schemaVersion"', b'"distributedInfo"')


def read_trace(path: Path) -> Trace:
    """Read a trace written by `write_trace`, also one that another program reformatted.

    Raises:
        TraceError: not a trace of ours, of a newer format, or nothing readable in it. The message
            names the file, the reason and what to do.
    """
    try:
        if not path.is_file():  # a named pipe would make us wait for ever
            raise TraceError(f"{path} is not a file. Give a trace.json or a run directory.")
        with path.open("rb") as file:
            return _read(path, _Blocks(file))
    except (OSError, MemoryError) as problem:
        reason = getattr(problem, "strerror", None) or problem or "not enough memory"
        raise TraceError(
            f"can't read {path}: {reason}. Check the file, or give its run directory."
        ) from problem


class _Blocks:
    """The file's text in blocks; compressed data that ends early sets `cut_off`, and what was
    unpacked before the damage is there."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._compressed = file.read(2) == _GZIP
        file.seek(0)
        self.cut_off = False
        self._blocks = self._limited()

    def __iter__(self) -> Iterator[bytes]:
        """Return the blocks not yet taken: one reader may continue where another stopped."""
        return self._blocks

    def rest_is_whole(self, begun: bytes) -> bool:
        """Return whether the file ends as it should, after what was read of its events."""
        tail = begun
        if self._compressed:
            for block in self._blocks:
                tail = (tail + block)[-_END_BYTES:]
        else:
            self._file.seek(max(0, os.fstat(self._file.fileno()).st_size - _END_BYTES))
            tail = self._file.read()
        return not self.cut_off and _END.search(tail[-_END_BYTES:]) is not None

    def _limited(self) -> Iterator[bytes]:
        total = 0
        plain = iter(lambda: self._file.read(_BLOCK_BYTES), b"")
        for block in self._unpacked() if self._compressed else plain:
            total += len(block)
            if total > _MAX_BYTES:
                raise OSError(f"larger than {_MAX_BYTES >> 30} GiB when unpacked")
            yield block

    def _unpacked(self) -> Iterator[bytes]:
        # `gzip` gives nothing of a read that meets the end too early; zlib what there is.
        unpack = zlib.decompressobj(wbits=31)
        while packed := self._file.read(_PACKED_BYTES):
            while packed:
                try:
                    yield unpack.decompress(packed, _BLOCK_BYTES)
                except zlib.error:
                    self.cut_off = True
                    return
                packed = unpack.unconsumed_tail
                if unpack.eof:
                    packed = unpack.unused_data
                    if not packed.startswith(_GZIP):
                        return
                    unpack = zlib.decompressobj(wbits=31)
        self.cut_off = not unpack.eof


def _read(path: Path, blocks: _Blocks) -> Trace:
    text, first_events = _split_head(path, blocks)
    notes: list[str] = []
    if first_events is not None:
        text = text.rstrip().rstrip(b",") + b"}"
    head, facts = _decode_head(path, text, notes)
    del text
    table = _unpacked(path, head, facts)
    if is_cut := first_events is not None and not blocks.rest_is_whole(first_events):
        notes.append(f"{path.name} is cut off: its spans are complete, events for viewers are not")
    return trace_from(path, head, table, notes, truncated=is_cut)


def _unpacked(path: Path, head: Head, facts: Facts) -> SpanTable:
    if not bytes(head.grpoDoctorSpans):
        raise TraceError(
            f"{path} was written by {facts.version or 'an older version'}, which kept no columns "
            f"of its spans. {_INSTEAD}"
        )
    try:
        packed = msgspec.json.decode(head.grpoDoctorSpans, type=PackedSpans)
        return packed.table(facts.last_seen)
    except (*BAD_JSON, ValueError) as problem:
        raise TraceError(
            f"{path} is damaged: the columns of its spans ({problem}). {_INSTEAD}"
        ) from problem


def _split_head(path: Path, blocks: _Blocks) -> tuple[bytes, bytes | None]:
    """Text before our `traceEvents` line, and what of the events was read with it; None: no such
    line, the text is the whole file, as another program wrote it."""
    marker = b"\n" + EVENTS_LINE.encode()
    text = bytearray()
    for block in blocks:
        searched = max(0, len(text) - len(marker))
        text += block
        index = text.find(marker, searched)
        if index >= 0 and _OURS in text:
            return bytes(text[:index]).removeprefix(_UTF8_MARK), bytes(text[index + len(marker) :])
        if len(text) > _MAX_HEAD_BYTES:
            raise TraceError(
                f"{path}: the first {_MAX_HEAD_BYTES >> 30} GiB have no grpo-doctor events. "
                "Give a trace.json that `grpo-doctor run` wrote."
            )
    if _OURS not in text:
        raise TraceError(_unusable(path, bytes(text), cut_off=blocks.cut_off))
    return bytes(text).removeprefix(_UTF8_MARK), None


def _unusable(path: Path, text: bytes, *, cut_off: bool = False) -> str:
    if cut_off:
        return f"{path} is damaged: the compressed data can't be unpacked. {_INSTEAD}"
    if not text.strip():
        return f"{path} is empty: the run ended before it was written. {_INSTEAD}"
    head = text[:1_000_000]
    kind = ""
    if b'"traceEvents"' in head or head.lstrip().startswith(b"[{"):
        kineto = any(key in head for key in _KINETO)
        kind = "a PyTorch profiler trace" if kineto else "a trace of another program"
        kind = f" and looks like {kind}"
    return (
        f"{path} is not a grpo-doctor trace: it has no `grpoDoctor` object{kind}. "
        "Record one with `grpo-doctor run -- <your training command>`."
    )


def _decode_head(path: Path, text: bytes, notes: list[str]) -> tuple[Head, Facts]:
    try:
        head = _typed(path, text)
    except BAD_JSON as problem:
        repaired, bare = BARE_NAN.subn(b"null", text)
        if not bare:
            raise TraceError(f"{path} is damaged: {problem}. {_INSTEAD}") from problem
        try:
            head = _typed(path, repaired)
        except BAD_JSON as still:
            raise TraceError(f"{path} is damaged: {still}. {_INSTEAD}") from still
        notes.append(
            f"{path.name}: {bare} numbers were NaN or infinite, which JSON forbids; left out"
        )
    if head.grpoDoctor is None:
        raise TraceError(_unusable(path, text))
    return head, head.grpoDoctor


def _typed(path: Path, text: bytes) -> Head:
    # The version first: another one may have other types.
    facts = msgspec.json.decode(text, type=FormatHead).grpoDoctor
    version = facts.format if facts else FORMAT
    if version > FORMAT:
        raise TraceError(
            f"{path} is of trace format {version}; this grpo-doctor reads up to {FORMAT}. "
            "Upgrade: git pull in its checkout, then pip install ."
        )
    return msgspec.json.decode(text, type=Head)


_INSTEAD = (
    "If it came from a run directory, point `report` at that directory instead; it holds the "
    "original recordings."
)


def load(path: str | Path, jobs: int | None = 1) -> Trace:
    """The trace at `path`. A run directory is merged afresh, so that a live run can be looked at;
    one from which only the trace was kept is read from that. `jobs` as in `merge`.

    Raises:
        TraceError: nothing there, or nothing readable.
    """
    path = Path(path)
    try:
        present, folder = path.exists(), path.is_dir()
    except OSError as problem:
        raise TraceError(f"can't read {path}: {problem.strerror or problem}.") from problem
    if not present:
        raise TraceError(
            f"{path} does not exist. Give a run directory or a trace.json; "
            "`grpo-doctor run` prints both when it ends."
        )
    if not folder:
        return read_trace(path)
    try:
        return merge(path, jobs)
    except TraceError:
        for name in (TRACE_JSON, f"{TRACE_JSON}.gz"):
            if (path / name).exists():
                return read_trace(path / name)
        raise
