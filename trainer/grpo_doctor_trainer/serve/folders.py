"""The folders through which a trainer on the same machine leaves weights for the engine.

The server makes them, for its user alone, and removes them at its end. Each holds a file with a
random token: a trainer that reads the same token there sees the same folder, whatever containers or
mounts are between them. A server that was killed leaves its folders behind; the next one on the
machine removes them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_trainer.serve.protocol import ProtocolError
from grpo_doctor_trainer.serve.state import Folder

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
TOKEN_FILE = "token"  # noqa: S105 - the name of a file
_NAME = "grpo-doctor-weights-{pid}-{random}"
_PATTERN = re.compile(r"grpo-doctor-weights-(\d+)-[0-9a-f]{16}")
_FILE = re.compile(r"[A-Za-z0-9_-]+\.safetensors")


def make_folders(parents: Sequence[Path]) -> list[Folder]:
    """Makes one private folder in each parent that can be written to."""
    folders = []
    for parent in parents:
        with suppress(OSError):
            parent.mkdir(parents=True, exist_ok=True)
            remove_stale(parent)
            name = _NAME.format(pid=os.getpid(), random=secrets.token_hex(8))
            folder = parent.resolve() / name
            folder.mkdir(mode=0o700)
            token = secrets.token_hex(16)
            (folder / TOKEN_FILE).write_text(token, encoding="ascii")
            folders.append(Folder(str(folder), token))
    return folders


def remove_folders(folders: Sequence[Folder]) -> None:
    """Removes the folders with all that is in them."""
    for folder in folders:
        shutil.rmtree(folder.path, ignore_errors=True)


def remove_stale(parent: Path) -> None:
    """Removes what servers of this user left behind that are no longer there."""
    for entry in os.scandir(parent):
        match = _PATTERN.fullmatch(entry.name)
        if match is None or not entry.is_dir(follow_symlinks=False):
            continue
        mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
        if mine and not Path(f"/proc/{match[1]}").exists():
            shutil.rmtree(entry.path, ignore_errors=True)


def shared(folder: Folder) -> bool:
    """Whether this process sees the folder that a server means."""
    try:
        token = (Path(folder.path) / TOKEN_FILE).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return False
    return secrets.compare_digest(token, folder.token)


def checked_files(files: Sequence[str], folders: Sequence[Folder]) -> list[Path]:
    """Resolves the paths of a request.

    Args:
        files: paths, as the trainer sent them.
        folders: those of this server.

    Raises:
        ProtocolError: a path that is not a plain safetensors file right inside one of the folders.
    """
    allowed = {folder.path for folder in folders}
    checked = []
    for name in files:
        path = Path(name)
        plain = _FILE.fullmatch(path.name) and not path.is_symlink() and path.is_file()
        if str(path.parent) not in allowed or not plain:
            raise ProtocolError(
                f"{name!r} is not a safetensors file right inside one of this server's folders"
            )
        checked.append(path)
    return checked
