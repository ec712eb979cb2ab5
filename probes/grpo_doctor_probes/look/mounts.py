"""On which file system a path is, without touching it: a dead file server would hold us."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_doctor_probes.procfs import read

if TYPE_CHECKING:
    from pathlib import Path

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system: where, of which kind (`nfs4`, `ext4`, `fuse.s3fs`), from where."""

    point: str
    kind: str
    source: str


def mount_of(proc: Path, pid: int, path: str) -> Mount | None:
    """The mount that `path` is on, as process `pid` sees it."""
    return on_mount(mounts(proc, pid), path)


def on_mount(known: list[Mount], path: str) -> Mount | None:
    """The one of `known` that `path` is on."""
    best: Mount | None = None
    for mount in known:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # Of two on one point the later one hides the earlier.
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def mounts(proc: Path, pid: int) -> list[Mount]:
    """All mounts that process `pid` sees; none when it has gone."""
    try:
        return parse_mounts(read(f"{proc}/{pid}/mountinfo", 16 << 20))
    except OSError:
        return []


def parse_mounts(mountinfo: bytes) -> list[Mount]:
    """From /proc/PID/mountinfo; format in proc_pid_mountinfo(5)."""
    parsed = []
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(b" - ")
        words, kind_source = left.split(), right.split()
        if dash and len(words) >= 5 and len(kind_source) >= 2:
            parsed.append(Mount(_text(words[4]), _text(kind_source[0]), _text(kind_source[1])))
    return parsed


def _text(escaped: bytes) -> str:
    plain = _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), escaped)
    return plain.decode("utf-8", "surrogateescape")
