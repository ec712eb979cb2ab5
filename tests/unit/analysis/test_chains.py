"""A rank that is late because it waited itself is not the culprit."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from tests.build import TraceBuilder


def chain(order: tuple[int, int, int] = (0, 1, 2)) -> TraceBuilder:
    """`late` works 9 s, so that `middle` waits for it in group `a` and `victim` for `middle` in
    group `b`. Without `late`'s delay all had been there after 2 s."""
    victim, middle, late = order
    build = TraceBuilder(ranks=3)
    for rank in range(3):
        build.step(rank, 0, 0.0, {"train": 12.0})
    build.collective(middle, 1, 2.0, 9.0, group="a").collective(late, 1, 9.0, 9.0, group="a")
    build.collective(victim, 1, 2.0, 10.0, group="b").collective(middle, 1, 10.0, 10.0, group="b")
    return build


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_blame_goes_to_where_the_delay_arose(order: tuple[int, int, int]) -> None:
    _, middle, late = order
    blame = analyse(chain(order).build()).blame
    # middle waits 7 s for late; victim waits 8 s, of which 1 s is middle's own way from a to b.
    assert blame.explained_s[late] == pytest.approx(14)
    assert blame.explained_s[middle] == pytest.approx(1)
    assert blame.explained_s.sum() == pytest.approx(blame.waited_s)


def test_a_wait_that_the_waiter_shared_is_over() -> None:
    # All three wait for rank 2 in one collective; later rank 1 alone is late.
    build = TraceBuilder(ranks=3)
    for rank, (first_s, second_s) in enumerate([(1.0, 6.0), (1.0, 9.0), (5.0, 6.0)]):
        build.step(rank, 0, 0.0, {"train": 12.0})
        build.collective(rank, 1, first_s, 5.0, group="a").collective(
            rank, 1, second_s, 9.0, group="b"
        )
    blame = analyse(build.build()).blame
    assert blame.explained_s.tolist() == pytest.approx([0, 6, 8])


@pytest.mark.parametrize("met_s", [6.0, 5.0])
def test_a_wait_before_the_last_common_collective_is_over_too(met_s: float) -> None:
    build = TraceBuilder(ranks=3)
    for rank in range(3):
        build.step(rank, 0, 0.0, {"train": 20.0})
    # Rank 1 waits for rank 2 until 5; ranks 0 and 1 meet after that; then rank 1 is late by itself.
    build.collective(1, 1, 1.0, 5.0, group="a").collective(2, 1, 5.0, 5.0, group="a")
    for rank, second in ((0, 8.0), (1, 12.0)):
        build.collective(rank, 1, met_s, met_s, group="b")
        build.collective(rank, 2, second, 12.0, group="b")
    blame = analyse(build.build()).blame
    assert blame.explained_s.tolist() == pytest.approx([0, 4, 4])


def test_several_waits_of_a_culprit_are_all_followed() -> None:
    build = TraceBuilder(ranks=4)
    for rank in range(4):
        build.step(rank, 0, 0.0, {"train": 20.0})
    build.collective(1, 1, 1.0, 4.0, group="a").collective(2, 1, 4.0, 4.0, group="a")
    build.collective(1, 1, 5.0, 7.0, group="c").collective(3, 1, 7.0, 7.0, group="c")
    build.collective(0, 1, 1.0, 8.0, group="b").collective(1, 1, 8.0, 8.0, group="b")
    blame = analyse(build.build()).blame
    # Of rank 0's 7 s: 2 s are rank 3's, 3 s rank 2's, 2 s rank 1's own.
    assert blame.explained_s.tolist() == pytest.approx([0, 2, 6, 4])
