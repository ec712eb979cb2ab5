"""The advised split of an asynchronous run's GPUs, against real jobs of it and of those next to it.

They need the environment of `make frameworks`, and are skipped without it: five jobs of minutes,
which mostly sleep.
"""

from __future__ import annotations

import pytest

from tests.fake_nvml.build import compiler
from tests.frameworks.recorded_jobs import ENVIRONMENTS
from tests.frameworks.splits import JOBS, Split, run

pytest.importorskip("trl", reason="TRL needs Python 3.11")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(not ENVIRONMENTS.exists(), reason="`make frameworks` runs it"),
    pytest.mark.skipif(compiler() is None, reason="no C compiler for the stand-in of NVML"),
]
# What steps of one split differ by between runs on a machine with 2 cores.
SAME = 1.1


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Split]:
    folder = tmp_path_factory.mktemp("splits")
    return {train: run(JOBS["even"], train, folder / str(train)) for train in (6, 1, 2, 3, 4)}


@pytest.mark.parametrize("now", [6, 1])
def test_the_advised_split_is_as_fast_as_predicted(now: int, splits: dict[int, Split]) -> None:
    before, to = splits[now], splits[now].moved_to
    assert to in splits, before.answer
    predicted = before.predicted_s
    assert predicted is not None
    assert predicted[0] <= splits[to].step_s <= predicted[2]
    assert splits[to].step_s <= SAME * min(split.step_s for split in splits.values())


def test_a_split_next_to_the_best_gets_no_advice_that_slows_it(splits: dict[int, Split]) -> None:
    for train in (3, 4):
        to = splits[train].moved_to
        assert to is None or splits[to].step_s < SAME * splits[train].step_s


def test_no_rank_is_blamed_for_the_samples_that_it_takes(splits: dict[int, Split]) -> None:
    for split in splits.values():
        assert not split.blamed
