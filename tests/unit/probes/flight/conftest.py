"""Processes to look into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_doctor_probes.flight import borrow, injection
from tests.unit.probes.flight.sleeper import Target, started

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that does not stop in time is left alone; here the whole machine stalls."""
    monkeypatch.setattr(borrow, "_STOPS_WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(borrow, "_GIVES_BACK_WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(injection, "_READS_WITHIN_S", PATIENCE_S)


@pytest.fixture
def target() -> Iterator[Target]:
    """A process whose helper thread sleeps."""
    with started() as process:
        yield process
