"""A recording of this very process, begun and ended around a test."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from tests.recording import Row, read_rows, spans_file


@dataclass(frozen=True)
class Recorded:
    """What this process recorded into `run_dir`."""

    run_dir: Path

    @property
    def path(self) -> Path:
        return spans_file(self.run_dir)

    @property
    def rows(self) -> list[Row]:
        return read_rows(self.path)

    @property
    def header(self) -> live.Header:
        return live.read_header(self.path)


@pytest.fixture(autouse=True)
def not_recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test begins and ends without a recording, and with no wish for one."""
    for name in ("GRPO_DOCTOR_RUN_DIR", "GRPO_DOCTOR_MAX_MB", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(recorder._Start, "refused", None)
    monkeypatch.setattr(recorder._Start, "inherited", None)
    yield
    recorder.stop()


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recorded]:
    """Records this process as rank 0; no collection comes unasked and adds a counter."""
    assert recorder.start(str(tmp_path))
    gc.disable()
    yield Recorded(tmp_path)
    gc.enable()


def until(condition: Callable[[], Any], at_most_s: float = 60.0) -> Any:
    """Wait until a condition holds; what it gave then."""
    deadline = time.monotonic() + at_most_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return value
