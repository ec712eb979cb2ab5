"""The flight-recorder variables that a job needs to leave evidence, where the user set none; and
when the backend gives up on a collective and kills the ranks, and with them the evidence.

Since torch 2.11 the recorder is on by itself, before it must be asked for. The names are those of
2.8, the first torch whose recorder is read: an older one ignores them.

What is left alone, and why:

* The dump pipe: torch ends a rank that can't make it, and its name has the rank within the
  process's first group only. Two engines of one job, both with a rank 0, that start at once can
  take each other's pipe away between two calls, which ends one of them.
* `TORCH_INCLUDE_STACK_TRACE`: stacks need Python's lock, but where they can't be had torch writes a
  second dump without; and they name the user's line of a collective that the host has long left.
* `TORCH_NCCL_ENABLE_TIMING`: two more events for each collective, in every step.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

_ENTRIES = "2000"  # torch's own default since 2.11
_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# What NCCL's groups read, in all versions. The other name, of 2.15, is that of other backends.
_ON_TIMEOUT = ("TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT")
_INSTALLED = re.compile(r"torch-(\d+)\.(\d+)[^/]*\.dist-info")
Version = tuple[int, int]
# torch's own: kProcessGroupNCCLDefaultTimeout and default_pg_timeout.
NCCL_S, GLOO_S = 600.0, 1800.0
# transformers, and so TRL and ms-swift, and the bundled trainer.
_FLAGS = ("--ddp_timeout", "--ddp-timeout")
_TRAINERS_S = 1800.0


def flight_variables(
    environment: Mapping[str, str], folder: Path, version: Version | None, *, gpus: int
) -> dict[str, str]:
    """Return what to add to the environment.

    Args:
        environment: the job's up to now; what it sets, under either name, stays.
        folder: where dumps go; it must exist when the job starts.
        version: the job's torch; unknown is taken for a new one.
        gpus: without any there is no NCCL, and gloo writes no files.
    """
    settings = [(_SIZE, _ENTRIES)] if version and version < (2, 11) else []
    if gpus:
        settings += [(_FILES, str(folder.resolve() / "rank_")), (_ON_TIMEOUT, "1")]
    return {names[0]: value for names, value in settings if not environment.keys() & names}


def torch_version(program: str) -> Version | None:
    """The torch of the Python that a program belongs to, found by its folders without running it.

    Args:
        program: `swift`, `torchrun`, `/opt/env/bin/python`; for a shell script what `python` is.
    """
    for name in (program, "torchrun", "python3", "python"):
        executable = shutil.which(name)
        if executable is None:
            continue
        # Not resolved: a virtual environment's python is a link out of it.
        for path in Path(executable).parent.parent.glob(
            "lib/python3*/site-packages/torch-*.dist-info"
        ):
            if match := _INSTALLED.fullmatch(path.name):
                return int(match[1]), int(match[2])
    return None


def timeout_s(arguments: Sequence[str], *, bundled: bool, gpus: int) -> float:
    """Return the timeout in seconds from the command's words, else the default.

    Args:
        arguments: the command, or the bundled trainer's flags.
        bundled: whether it is the bundled trainer, which has a default of its own.
        gpus: visible GPUs; without any the backend is gloo.
    """
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in _FLAGS:
            text = value if equals else "".join(arguments[index + 1 : index + 2])
            if text.isdecimal() and int(text):
                return float(text)
    if bundled:
        return _TRAINERS_S
    return NCCL_S if gpus else GLOO_S
