"""Files that are whole or not there, and readable by the user alone."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from grpo_doctor.errors import OutputError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes `path`'s place when the block ends well; otherwise nothing has changed.

    A symbolic link keeps pointing: what it points to is replaced, unless the link is another
    user's. A device or a pipe, such as /dev/stdout, is written to as it is.

    Raises:
        OutputError: the file can't be written.
    """
    try:
        with _in_place(path) if _is_special(path) else _beside(_target(path)) as file:
            yield file
    except OSError as problem:
        raise OutputError(f"can't write {path}: {_why(path, problem)}") from problem


def _why(path: Path, problem: OSError) -> str:
    if isinstance(problem, FileNotFoundError):
        return f"the folder {path.parent} does not exist. Create it, or choose another place."
    room = "Make room, or choose" if problem.errno in _FULL else "Choose"
    return f"{problem.strerror or problem}. {room} another place."


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _target(path: Path) -> Path:
    # A link of another user would choose which of our files is replaced.
    if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, "it is a link of another user")
    return path.resolve()


@contextmanager
def _in_place(path: Path) -> Iterator[IO[bytes]]:
    with path.open("wb") as file:
        yield file


@contextmanager
def _beside(path: Path) -> Iterator[IO[bytes]]:
    # A name that nobody can guess, never through a link: the folder may be open to others.
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
