"""Where results go: files made in one step, standard output, the width and color of a terminal."""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

import msgspec

from grpo_doctor.errors import OutputError, UsageError
from grpo_doctor.files import replacing
from grpo_doctor_probes.procs.printable import escaped_json, visible
from grpo_doctor_reports.schema import AnyDocument

STDOUT = "-"
_MAX_WIDTH = 110


def given_path(text: str) -> Path:
    """A path on the command line. An empty one is a variable of the shell that is not set, and not
    the folder that one happens to be in. Raises ArgumentTypeError."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return Path(text)


def write_bytes(content: bytes, output: str) -> None:
    """Write a whole file, readable by the user alone, or standard output for `-`.

    Raises:
        OutputError: the file can't be written; what was there before is untouched.
    """
    if output == STDOUT:
        _write_stdout(content if content.endswith(b"\n") else content + b"\n")
        return
    with replacing(Path(output)) as file:
        file.write(content)


def check_output(output: str | Path, *recordings: Path) -> None:
    """Raise UsageError where writing to `output` would replace one of the recordings."""
    for recording in recordings:
        try:
            is_recording = Path(output).samefile(recording)
        except OSError:  # one of them does not exist: nothing is replaced
            continue
        if is_recording and recording.is_file():
            raise UsageError(f"{output} is the recording itself; write to another file.")


def write_binary(content: bytes) -> None:
    """Writes to standard output as it is, for another program. Raises OutputError."""
    _to_stdout(content)


def _write_stdout(content: bytes) -> None:
    _to_stdout(_harmless(content))


def _to_stdout(content: bytes) -> None:
    try:
        _write_whole(sys.stdout.buffer, content)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has what it wanted. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is closed"
        raise OutputError(f"can't write to standard output: {reason}.") from problem


def _harmless(content: bytes) -> bytes:
    """What may go to a terminal: text and JSON without characters that act on it; pages as is."""
    begin = content[:64].lstrip()[:1]
    if begin == b"<":
        return content
    text = content.decode("utf-8", "replace")
    if begin in (b"{", b"["):
        return escaped_json(text).encode()
    return visible(text, colored=sys.stdout.isatty()).encode()


def _write_whole(stream: BinaryIO, content: bytes) -> None:
    """All of it, even if one write takes only a part: PYTHONUNBUFFERED leaves no buffer to retry,
    and the parent may have made the pipe non-blocking."""
    unwritten = memoryview(content)
    while unwritten:
        try:
            written = stream.write(unwritten) or 0
        except BlockingIOError as full:
            written = full.characters_written
        unwritten = unwritten[written:]
        if unwritten and not written:
            select.select([], [stream], [])
    while True:
        try:
            return stream.flush()
        except BlockingIOError:
            select.select([], [stream], [])


def document_json(document: AnyDocument) -> bytes:
    """Return the document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def color_wanted(stream: TextIO | None) -> bool:
    """Return whether to use color: on a terminal, unless disabled (https://no-color.org)."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return stream is not None and not plain and not stream.closed and stream.isatty()


def terminal_width() -> int:
    """Return columns to fill."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)
