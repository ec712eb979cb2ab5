from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.probes.discover.fakeproc import FakeProc


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    """A host with nothing but its first process and a shell."""
    fake = FakeProc(tmp_path)
    fake.add(1, 0, "/sbin/init", name="init", program="/sbin/init")
    fake.add(50, 1, "bash", name="bash", program="/bin/bash")
    return fake
