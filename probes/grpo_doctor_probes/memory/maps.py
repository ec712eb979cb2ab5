"""What another process has mapped, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ (\d+) *(.*)")


@dataclass(frozen=True)
class Mapping:
    """A line of /proc/PID/maps. `path` is as the process sees it, empty for anonymous memory."""

    start: int
    end: int
    rights: str
    offset: int
    inode: int
    path: str

    @property
    def name(self) -> str:
        """The file's name without its folders, and without the mark of a deleted file."""
        return self.path.removesuffix(" (deleted)").rpartition("/")[2]


def parse_maps(text: str) -> tuple[Mapping, ...]:
    """The mappings in the text of /proc/PID/maps, by address."""
    found = []
    for line in text.split("\n"):  # not splitlines: a hostile file name may hold \r or \x85
        if match := _LINE.fullmatch(line):
            start, end, rights, offset, inode, path = match.groups()
            numbers = int(start, 16), int(end, 16), rights, int(offset, 16), int(inode)
            found.append(Mapping(*numbers, path))
    return tuple(found)


def mapped(pid: int, proc: Path = Path("/proc")) -> tuple[Mapping, ...]:
    """What process `pid` has mapped. Raises OSError where it is gone or may not be read."""
    return parse_maps((proc / str(pid) / "maps").read_text("utf-8", "surrogateescape"))
