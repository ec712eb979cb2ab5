"""Counters by step and rank."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import counted, counted_mean
from tests.build import TraceBuilder


def built() -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for number in range(3):
        for rank in (0, 1):
            build.step(rank, number, 10.0 * number, {"train": 10.0})
    return build


def test_samples_are_added_up_in_their_step_and_rank() -> None:
    build = built()
    build.series("c", "", [1.0, 2.0, 11.0, 35.0], [1.0, 2.0, 5.0, 9.0], scope="counter", rank=0)
    build.series("c", "", [25.0, 26.0], [7.0, float("nan")], scope="counter", rank=1)
    table = counted(analyse(build.build()), "c")
    assert np.array_equal(table, [[3.0, np.nan], [5.0, np.nan], [np.nan, 7.0]], equal_nan=True)
    assert counted_mean(analyse(build.build()), "c") == 5.0


def test_what_was_not_counted_is_unknown() -> None:
    build = built().series("c", "", [1.0], [1.0], scope="host")
    assert counted_mean(analyse(build.build()), "c") is None
    assert counted_mean(analyse(TraceBuilder().build()), "c") is None
