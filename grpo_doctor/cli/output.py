"""Where results go: files made in one step, standard output, the width and colour of a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import msgspec

from grpo_doctor.files import replacing

STDOUT = "-"
_MAX_WIDTH = 110


def write_bytes(content: bytes, output: str) -> None:
    """Writes a whole file, readable by the user alone, or standard output for `-`.

    Raises:
        OutputError: the file can't be written; what was there before is untouched.
    """
    if output == STDOUT:
        sys.stdout.buffer.write(content if content.endswith(b"\n") else content + b"\n")
        sys.stdout.flush()
        return
    with replacing(Path(output)) as file:
        file.write(content)


def document_json(document: Mapping[str, Any]) -> bytes:
    """The document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def color_wanted(stream: TextIO) -> bool:
    """Whether to colour: a terminal, and not asked otherwise (https://no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Columns to fill."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)
