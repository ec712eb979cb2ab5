from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.groups import group_times
from tests.build import TraceBuilder


def test_skew_and_transfer_of_each_kind_of_collective() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(2):
        at = 20.0 * number
        for rank in (0, 1):
            build.step(rank, number, at, {"train": 12.0, "sync": 6.0}, end_s=at + 20)
            build.collective(rank, 2 * number + 1, at + 2 + 4 * rank, at + 7, group="dp")
            build.collective(rank, 2 * number + 2, at + 13, at + 16, group="dp", name="broadcast")
    reduce, broadcast = group_times(analyse(build.build()))
    assert reduce[:3] == ("dp", "all_reduce", "train")
    assert [reduce.per_step, reduce.skew_s, reduce.last_rank] == pytest.approx([1, 4, 1])
    assert reduce.seconds == pytest.approx((5 + 1) / 2)
    assert reduce.transfer_s == pytest.approx(1)
    assert broadcast[:3] == ("dp", "broadcast", "sync")
    assert [broadcast.skew_s, broadcast.transfer_s] == pytest.approx([0, 3])


def test_without_matched_collectives_there_is_nothing_to_say() -> None:
    build = TraceBuilder().step(0, 0, 0.0, {"train": 1.0}).collective(0, 1, 0.1, 0.2)
    assert group_times(analyse(build.build())) == []
