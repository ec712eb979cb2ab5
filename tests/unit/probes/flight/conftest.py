"""Processes to look into."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.probes.flight.sleeper import Target, started


@pytest.fixture
def target() -> Iterator[Target]:
    """A process whose helper thread sleeps."""
    with started() as process:
        yield process
