"""The other end of what a rank has open, on a host made of files."""

from __future__ import annotations

import os

import pytest

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.other_ends import Direction, end_of
from grpo_doctor_probes.procs.procfs import descriptors
from tests.unit.probes.look.scene import Scene

RANK, OTHER, THIRD = 70, 90, 91
UNKNOWN = "no process that can be inspected serves it"
FAR, CONTAINER, HERE = "0201A8C0", "0200000A", "0100000A"


def end(scene: Scene, direction: Direction = "in", job: tuple[int, ...] = ()) -> Blocked:
    return end_of(scene.view(*job), RANK, RANK, 3, direction)


def described(*pids: int) -> str:
    return ", ".join(f"{pid} (python, sleeping)" for pid in pids)


def hide(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """Another user's process: its descriptors are not for us."""

    def of_ours(proc: str | os.PathLike[str], target_pid: int) -> object:
        if target_pid == pid:
            raise PermissionError
        return descriptors(proc, target_pid)

    monkeypatch.setattr("grpo_doctor_probes.look.hostview.descriptors", of_ours)
