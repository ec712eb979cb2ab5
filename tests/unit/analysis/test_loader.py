"""The queue between loader processes and a rank."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.whatif.models.loading import waits_for_data


def mean(efforts: list[float], rests: list[float], workers: int, prefetch: int = 2) -> float:
    return float(waits_for_data(efforts, rests, workers=workers, prefetch=prefetch).mean())


def test_without_processes_all_effort_is_waited_for() -> None:
    assert waits_for_data([1.0, 2.0], [5.0, 5.0], workers=0).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("workers", "wait"), [(1, 2.0), (2, 0.5), (3, 0.0), (4, 0.0)])
def test_even_batches_wait_for_what_the_processes_lack(workers: int, wait: float) -> None:
    # Three seconds a batch, one second of other work: w processes give a batch each 3 / w seconds.
    assert mean([3.0] * 12, [1.0] * 12, workers) == pytest.approx(wait)


def test_a_long_batch_hides_behind_a_queue_that_is_long_enough() -> None:
    efforts, rests = [0.1] * 5 + [4.0], [1.0] * 6
    assert mean(efforts, rests, workers=1, prefetch=1) == pytest.approx(3.0 / 6, abs=0.2)
    assert mean(efforts, rests, workers=1, prefetch=8) == 0.0


def test_no_queue_helps_where_the_mean_is_too_slow() -> None:
    slow = mean([2.0] * 10, [1.0] * 10, workers=1, prefetch=64)
    assert slow == pytest.approx(1.0)


def test_nothing_fetched_is_nothing_waited() -> None:
    assert np.array_equal(waits_for_data([], [], workers=2), np.empty(0))
