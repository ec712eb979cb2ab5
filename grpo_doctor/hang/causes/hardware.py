"""GPUs that fail: Xid messages, CUDA errors in logs, a card that fell off the bus."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import ENDED, Candidate, Case
from grpo_doctor.hang.scene import Scene
from grpo_doctor.hang.verdict import Fix, Item

_XID = re.compile(r"NVRM: Xid \(PCI:[0-9a-fA-F:.]+\): (\d+)(?:, pid='?(\d+))?")
_FATAL = frozenset({31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120})
_CUDA = re.compile(
    r"CUDA error|CUDA kernel errors|illegal memory access|device-side assert|uncorrectable ECC"
    r"|fallen off the bus|Unable to determine the device handle|unspecified launch failure"
)
RECENT_S = 1800.0


def propose(case: Case) -> Iterator[Candidate]:
    """A fault of a GPU that a rank of the job computes on."""
    scene = case.scene
    items: list[Item] = []
    ranks: set[int] = set()
    host = scene.evidence.host
    for age, text in host.kernel if host is not None else ():
        found = _XID.search(text)
        if found is None or int(found.group(1)) not in _FATAL or age > RECENT_S:
            continue
        actor = scene.by_pid.get(int(found.group(2))) if found.group(2) else None
        if found.group(2) and actor is None:
            continue  # of another job, or of an earlier run of this one
        items.append(Item("kernel", actor.rank if actor else None, text))
        if actor is not None and actor.rank is not None:
            ranks.add(actor.rank)
    for log in scene.evidence.logs:
        actor = scene.by_pid.get(log.pid)
        if actor is None or actor.rank is None or log.written_s_ago > RECENT_S:
            continue
        lines = [line for line in log.lines if _CUDA.search(line)]
        for line in lines[-1:]:
            named = _rank_in(line)
            ranks.add(actor.rank if named is None else named)
            items.append(Item("log", actor.rank if named is None else named, line))
    if items and _uses_gpus(scene):
        yield _candidate(tuple(sorted(ranks)), tuple(items))


def _rank_in(line: str) -> int | None:
    found = re.search(r"\[rank(\d+)\]", line)
    return int(found.group(1)) if found else None


def _uses_gpus(scene: Scene) -> bool:
    return bool(scene.evidence.gpus) or any(
        entry.backend == "nccl" for one in scene.recordings.ranks for entry in one.entries[-1:]
    )


def _candidate(ranks: tuple[int, ...], items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause="gpu-fault",
        culprits=ranks,
        reason="has a GPU that failed",
        whole="" if ranks else "a GPU of this host failed",
        evidence=items,
        hard=True,
        precise=ENDED,  # a job that gets on has survived it
        strength=0.9,
        fixes=(
            Fix("Take the GPU out of service (drain the node, reset or replace it), then restart."),
        ),
        confirm=("nvidia-smi -q | grep -A4 -i -e xid -e ecc", "dmesg -T | grep -i xid"),
    )
