"""Files that are whole or not there, and readable by the user alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from grpo_doctor.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes `path`'s place when the block ends well; otherwise nothing has changed.

    Raises:
        OutputError: the file can't be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as problem:
        raise OutputError(
            f"can't write {path}: {problem.strerror or problem}. "
            "Give another place with -o FILE, or -o - for standard output."
        ) from problem
