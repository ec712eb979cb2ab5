from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.probes.look.scene import MACHINE, OTHER, RANK, THIRD, Scene
from tests.unit.probes.look.stage import Stage

_LIMITS = (
    ("coroutines", "_AT_MOST_S"),
    ("coroutines", "_ALL_AT_MOST_S"),
    ("filecalls", "_STAT_AT_MOST_S"),
    ("host", "_DISKS_AT_MOST_S"),
    ("logs", "_AT_MOST_S"),
    ("logs", "_ALL_AT_MOST_S"),
    ("recorded", "_AT_MOST_S"),
    ("stackreading", "_ONE_AT_MOST_S"),
    ("syscalls", "_MEMORY_AT_MOST_S"),
)
_PATIENCE_S = 60.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look leaves out what takes seconds; here that is a machine that stalls for a moment."""
    for module, limit in _LIMITS:
        limited = import_module(f"grpo_doctor_probes.look.{module}")
        monkeypatch.setattr(limited, limit, _PATIENCE_S)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None) -> Scene:
    """A host with nothing but its first process."""
    monkeypatch.setattr("platform.machine", lambda: MACHINE)
    fake = Scene(tmp_path / "proc")
    monkeypatch.setattr("grpo_doctor_probes.look.hostview.unix_sockets", lambda: fake.unix)
    fake.add(1, 0, "/sbin/init", name="init", program="/sbin/init")
    return fake


@pytest.fixture
def stage(tmp_path: Path, patient: None) -> Iterator[Stage]:
    """Processes to look at."""
    processes = Stage(tmp_path)
    yield processes
    processes.end()


@pytest.fixture
def rank(scene: Scene) -> Scene:
    """A rank and two other processes."""
    scene.add(RANK, 1, "python train.py")
    (scene.root / str(RANK) / "root").symlink_to("/")
    for pid in (OTHER, THIRD):
        scene.add(pid, 1, "python other.py")
    return scene
