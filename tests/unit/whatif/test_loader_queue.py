"""The queue between loader processes and a rank, in cases that one can work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.whatif.models.loading import waits_for_data


def wait(effort: float, rest_s: float, workers: int, prefetch: int = 2, batches: int = 12) -> float:
    waits = waits_for_data(
        [effort] * batches, [rest_s] * batches, workers=workers, prefetch=prefetch
    )
    return float(waits.mean())


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(0, 6.0), (1, 4.0), (2, 1.0), (3, 0.0), (4, 0.0)],
)
def test_a_rank_waits_for_what_processes_cannot_hide(workers: int, expected: float) -> None:
    # Each batch takes a process 6 s, and the rank works for 2 s between two of them: with n
    # processes a batch is ready every 6 / n s.
    assert wait(6.0, 2.0, workers) == pytest.approx(expected)


def test_one_process_is_not_the_rank_itself() -> None:
    assert wait(1.0, 5.0, 1) == 0.0
    assert wait(1.0, 5.0, 0) == 1.0


def test_batches_that_are_ready_ahead_even_out_a_long_one() -> None:
    efforts, rests = [0.0] * 9 + [10.0], [1.5] * 10
    totals = [waits_for_data(efforts, rests, workers=1, prefetch=n).sum() for n in (1, 2, 4, 8)]
    assert totals[0] > totals[1] > totals[2]
    assert totals[0] == pytest.approx(8.5)
    assert totals[3] == 0.0


def test_no_batch_is_no_wait() -> None:
    assert len(waits_for_data([], [], workers=2)) == 0


def test_processes_begin_as_many_batches_as_they_may_have_ready() -> None:
    """One process, two ready: while the rank works for 3 s, it makes what takes 1, then waits."""
    efforts, rests = np.array([1.0, 1.0, 7.0, 1.0]), np.full(4, 3.0)
    # The third is begun when the first is taken: 7 s later the rank has worked for 6 s.
    assert waits_for_data(efforts, rests, workers=1, prefetch=2).tolist() == [0, 0, 1, 0]
