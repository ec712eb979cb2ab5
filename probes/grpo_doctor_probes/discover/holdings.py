"""What a process that nobody needs any more keeps from the next job: ports and GPUs."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from grpo_doctor_probes.procfs import descriptors, socket_inodes
from grpo_doctor_probes.tcprows import LISTENING, port_of, tcp_rows, tcp_tables

_GPU = re.compile(r"/dev/nvidia(\d+)")


def holdings(proc: Path, pid: int) -> tuple[str, ...]:
    """In words; empty where it holds nothing of the kind, or its descriptors may not be read."""
    targets: list[str] = []
    with contextlib.suppress(OSError):
        targets = [target for _, target in descriptors(proc, pid)]
    gpus = sorted({int(found[1]) for one in targets if (found := _GPU.fullmatch(one))})
    inodes = set(map(str.encode, socket_inodes(targets)))
    ports = sorted(
        {
            port_of(row.local)
            for table in (tcp_tables(proc, pid) if inodes else ())
            for row in tcp_rows(table)
            if row.state == LISTENING and row.inode in inodes
        }
    )
    return (*_named("port", ports), *_named("GPU", gpus))


def _named(kind: str, found: list[int]) -> tuple[str, ...]:
    if not found:
        return ()
    numbers = ", ".join(map(str, found))
    return (f"{kind}{'s' if len(found) > 1 else ''} {numbers}",)
