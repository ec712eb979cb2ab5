"""The flight-recorder variables that a job needs to leave evidence, where the user set none.

Since torch 2.11 the recorder is on by itself, from 2.2 on it must be asked for. Since 2.8 its
names are without NCCL, and newer versions warn about the old ones, so each gets its own.

The dump pipe is left alone: torch ends a rank that can't make it, and newer versions want the old
name for it that they warn about.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

_ENTRIES = "2000"  # torch's own default since 2.11
_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = ("TORCH_NCCL_DUMP_ON_TIMEOUT",)
_INSTALLED = re.compile(r"torch-(\d+)\.(\d+)[^/]*\.dist-info")

Version = tuple[int, int]


def flight_variables(
    environment: Mapping[str, str], folder: Path, version: Version | None, *, gpus: int
) -> dict[str, str]:
    """What to add to the environment.

    Args:
        environment: the job's up to now; what it sets, under either name, stays.
        folder: where dumps go; it must exist when the job starts.
        version: the job's torch; unknown is taken for a new one, whose names an old one ignores.
        gpus: without any there is no NCCL, and gloo writes no files.
    """
    version = version or (99, 0)
    spelling = 0 if version >= (2, 8) else 1
    wanted: dict[tuple[str, ...], str] = {}
    if version < (2, 11):
        wanted[_SIZE] = _ENTRIES
    if gpus:
        wanted[_FILES] = str(folder.resolve() / "rank_")
        wanted[_ON_TIMEOUT] = "1"
    return {
        names[min(spelling, len(names) - 1)]: value
        for names, value in wanted.items()
        if not any(name in environment for name in names)
    }


def torch_version(program: str) -> Version | None:
    """The torch of the Python that a program belongs to, told by its folders without running it.

    Args:
        program: `swift`, `torchrun`, `/opt/env/bin/python`; for a shell script what `python` is.
    """
    for name in (program, "torchrun", "python3", "python"):
        found = shutil.which(name)
        if found is None:
            continue
        # Not resolved: a virtual environment's python is a link out of it.
        for path in Path(found).parent.parent.glob("lib/python3*/site-packages/torch-*.dist-info"):
            if match := _INSTALLED.fullmatch(path.name):
                return int(match[1]), int(match[2])
    return None
