from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.probes.discover.fakeproc import FakeProc

_LIMITS = (
    ("candidates", "_PATIENCE_S"),
    ("commands", "_PATIENCE_S"),
    ("remains", "_PATIENCE_S"),
    ("scan", "_STUCK_AFTER_S"),
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not answer within a second is left out; here the whole machine stalls."""
    for module, limit in _LIMITS:
        monkeypatch.setattr(import_module(f"grpo_doctor_probes.discover.{module}"), limit, 60.0)


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    """A host with nothing but its first process and a shell."""
    fake = FakeProc(tmp_path)
    fake.add(1, 0, "/sbin/init", name="init", program="/sbin/init")
    fake.add(50, 1, "bash", name="bash", program="/bin/bash")
    return fake
