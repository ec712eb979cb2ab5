"""No input costs more than it weighs: twice its size costs at most twice the time, and a bound."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.security.attack import Attack
from tests.security.launch_attacks import LAUNCHES
from tests.security.measured import Cost, cost
from tests.security.recording_attacks import RECORDINGS

pytestmark = pytest.mark.heavy
_MOST_S = 15.0
_MOST_BYTES = 800 << 20
# What starting takes, and what a busy machine adds.
_NOISE_S = 1.0


@pytest.mark.parametrize("attack", [*LAUNCHES, *RECORDINGS], ids=lambda attack: attack.name)
def test_twice_the_size_costs_at_most_twice(attack: Attack, tmp_path: Path) -> None:
    costs = [_cost(attack, tmp_path / str(double), attack.size * double) for double in (1, 2, 4)]
    for before, after in itertools.pairwise(costs):
        assert after.seconds <= 2 * before.seconds + _NOISE_S


def _cost(attack: Attack, folder: Path, size: int) -> Cost:
    folder.mkdir()
    used = cost(attack.write(folder, size), folder, _MOST_S)
    assert b"Traceback" not in used.output
    assert used.code >= 0, f"ended by signal {-used.code}"
    assert used.output
    assert used.peak_bytes < _MOST_BYTES
    return used
