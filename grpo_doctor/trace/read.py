"""Reads `trace.json` back: streamed, typed, into columns, never the whole text at once.

A million spans are 150 MB of text and 45 MB of columns; the text passes in blocks. Damage costs
only the lines that it touches.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.decode import EventBlocks
from grpo_doctor.trace.head import Head, trace_from
from grpo_doctor.trace.model import FORMAT, Trace
from grpo_doctor.trace.write import EVENTS_LINE

_BLOCK_BYTES = 8 << 20
_MAX_HEAD_BYTES = 1 << 30
# A gzip bomb expands without end; the largest honest trace seen in tests is 200 MB.
_MAX_BYTES = 16 << 30
_BARE_NAN = re.compile(rb"(?<=[:\[,])\s*-?(?:NaN|Infinity)(?=\s*[,}\]])")


def read_trace(path: Path) -> Trace:
    """Reads a trace written by `write_trace`, also one that another program reformatted.

    Raises:
        TraceError: not a trace of ours, of a newer format, or nothing readable in it. The message
            names the file, the reason and what to do.
    """
    try:
        with _opened(path) as file:
            return _read(path, file)
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise TraceError(f"can't read {path}: {reason}.") from problem


def _opened(path: Path) -> gzip.GzipFile | IO[bytes]:
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else path.open("rb")


def _read(path: Path, file: gzip.GzipFile | IO[bytes]) -> Trace:
    notes: list[str] = []
    blocks = _Blocks(file)
    head_text, rest = _split_head(blocks)
    if not head_text.strip():
        raise TraceError(f"{path} is empty: the run that should have written it never got there.")
    if rest is None:
        return _read_reformatted(path, head_text, notes)
    head = _decode_head(path, head_text.rstrip().rstrip(b",") + b"}", notes)
    events = EventBlocks(head)
    complete = False
    for lines in _whole_lines(rest, blocks):
        if lines.strip():
            body, complete = _without_end(lines)
            events.add_lines(body)
    truncated = blocks.cut_off or not complete
    if truncated:
        notes.append(f"{path.name} is cut off: everything up to the cut is used")
    return trace_from(path, head, events, [*notes, *events.notes], truncated=truncated)


class _Blocks:
    """The file's blocks; a compressed file that ends early sets `cut_off` instead of raising."""

    def __init__(self, file: gzip.GzipFile | IO[bytes]) -> None:
        self._file = file
        self.cut_off = False
        self._total = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                block = self._file.read(_BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                self.cut_off = True
                return
            if not block:
                return
            self._total += len(block)
            if self._total > _MAX_BYTES:
                raise OSError(f"larger than {_MAX_BYTES >> 30} GiB when unpacked")
            yield block


def _split_head(blocks: _Blocks) -> tuple[bytes, bytes | None]:
    """Text before our `traceEvents` line, and what of the events was read with it; None: no such
    line, the text is the whole file."""
    marker = b"\n" + EVENTS_LINE.encode() + b"\n"
    text = b""
    for block in blocks:
        text += block
        found = text.find(marker)
        if found >= 0:
            return text[:found], text[found + len(marker) :]
        if len(text) > _MAX_HEAD_BYTES:
            break
    return text, None


def _whole_lines(first: bytes, blocks: _Blocks) -> Iterator[bytes]:
    """Blocks that end at a line's end; the last one may not."""
    rest = first
    for block in blocks:
        text = rest + block
        end = text.rfind(b"\n") + 1
        if end:
            yield text[:end]
        rest = text[end:]
    yield rest


def _without_end(lines: bytes) -> tuple[bytes, bool]:
    stripped = lines.rstrip()
    if stripped.endswith(b"]}"):
        return stripped[:-2], True
    return stripped, False


def _decode_head(path: Path, text: bytes, notes: list[str]) -> Head:
    try:
        head = msgspec.json.decode(text, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        repaired, count = _BARE_NAN.subn(b"null", text)
        if not count:
            raise TraceError(_damaged(path, problem)) from problem
        try:
            head = msgspec.json.decode(repaired, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as still:
            raise TraceError(_damaged(path, still)) from still
        notes.append(f"{path.name}: {count} numbers were NaN or infinite, against JSON; left out")
    return _checked(path, head)


def _checked(path: Path, head: Head) -> Head:
    if head.grpoDoctor is None:
        other = "a PyTorch profiler trace" if head.is_kineto else "a trace of another program"
        raise TraceError(
            f"{path} is not a grpo-doctor trace: it has no `grpoDoctor` object and looks like "
            f"{other}. Record one with `grpo-doctor run -- <your training command>`."
        )
    if head.grpoDoctor.format > FORMAT:
        raise TraceError(
            f"{path} is of trace format {head.grpoDoctor.format}; this grpo-doctor reads up to "
            f"{FORMAT}. Upgrade: pip install -U grpo-doctor"
        )
    return head


def _read_reformatted(path: Path, text: bytes, notes: list[str]) -> Trace:
    """Another program wrote the same JSON with other line breaks: decoded at once."""
    head = _decode_head(path, text, notes)
    events = EventBlocks(head)
    body = bytes(head.traceEvents).strip() or b"[]"
    try:
        events.add_array(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise TraceError(_damaged(path, problem)) from problem
    return trace_from(path, head, events, [*notes, *events.notes], truncated=False)


def _damaged(path: Path, problem: Exception) -> str:
    return (
        f"{path} is damaged: {problem}. If it came from a run directory, point `report` at that "
        "directory instead; it holds the original recordings."
    )
