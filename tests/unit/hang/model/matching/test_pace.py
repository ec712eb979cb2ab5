"""How a rank paces its operations, and whether it ever waited as it does now."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.dumps import Entry, GroupSeen, Recording, Recordings
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import Matching, Pace
from grpo_doctor.hang.model.view import LEAST_ENTRIES, recorded_history
from tests.evidence import SECOND, UNIX_NS

Call = tuple[str, int]  # the operation and its size
WORLD = (GroupSeen("0", "default_pg", backend="gloo"),)
GATHER, REDUCE, REWARDS = ("all_gather", 1024), ("reduce_scatter", 1024), ("all_gather", 8)


LOST = 50_000  # records that a full ring has dropped


def recorded(*calls: Call, rank: int = 1, thread: str = "", lost: int = 0) -> Recording:
    """One call every 0.1 s, the last 8 s ago and not done."""
    began = UNIX_NS - 8 * SECOND
    entries = tuple(
        Entry(
            lost + number, "0", "0", "default_pg", "gloo", op, op, number,
            input_sizes=((size,),), done=number < len(calls), thread_name=thread,
            created_ns=began - (len(calls) - number) * SECOND // 10,
        )
        for number, (op, size) in enumerate(calls, 1)
    )  # fmt: skip
    return Recording(rank, at_unix_ns=UNIX_NS, groups=WORLD, entries=entries)


def matched(*recordings: Recording) -> Matching:
    return match(Recordings(recordings), 4)


def familiar(*calls: Call, lost: int = 0) -> bool | None:
    pace = matched(recorded(*calls, lost=lost)).pace(1)
    assert pace is not None
    return pace.familiar


def test_a_wait_of_every_step_is_familiar() -> None:
    assert familiar(*[GATHER, REDUCE, REWARDS] * 5)


def test_a_ring_that_holds_less_than_a_step_has_only_the_work_of_the_layers() -> None:
    assert familiar(*[GATHER, REDUCE] * 20, REWARDS, lost=LOST) is False


def test_a_usual_operation_after_another_one_than_usual_is_not() -> None:
    assert familiar(*[GATHER, GATHER, REDUCE] * 20, REWARDS, GATHER, lost=LOST) is False


def test_nothing_is_familiar_in_the_first_step() -> None:
    start_up = [("broadcast", 64), ("broadcast", 512)] * 30
    assert familiar(*start_up, REWARDS) is False
    assert familiar(*start_up, *[GATHER, REDUCE] * 3, REWARDS) is False


def test_the_first_of_its_kind_in_a_job_of_many_rounds_stands_out() -> None:
    assert familiar(*[GATHER, REDUCE] * 20, REWARDS)
    assert familiar(*[GATHER, REDUCE] * 20, GATHER, ("barrier", 1), REWARDS)


def test_the_only_operation_is_not() -> None:
    assert familiar(GATHER) is False


def test_other_threads_do_not_come_between() -> None:
    own = recorded(*[GATHER, REWARDS] * 5)
    other = recorded(*[REDUCE] * 9, thread="metrics").entries
    rows = sorted((*own.entries, *other[:-1]), key=lambda entry: entry.created_ns or 0)
    pace = matched(Recording(1, at_unix_ns=UNIX_NS, groups=WORLD, entries=tuple(rows))).pace(1)
    assert pace is not None
    assert pace.familiar


def test_who_is_to_blame_may_stand_where_nobody_did_before() -> None:
    usual = [GATHER, REDUCE] * 9
    ranks = [recorded(*usual, rank=rank, lost=LOST) for rank in (0, 1, 2)]
    assert matched(*ranks, recorded(*usual[:-1], REWARDS, rank=3, lost=LOST)).familiar


def test_a_short_wait_of_a_new_kind_is_not_unusual_for_dumps_alone() -> None:
    def unusual(*calls: Call) -> bool:
        ranks = [recorded(*calls, rank=rank, lost=LOST) for rank in (0, 1, 2)]
        late = Recording(0, at_unix_ns=UNIX_NS, groups=WORLD, entries=ranks[0].entries[:-1])
        return recorded_history(matched(late, *ranks[1:])).unusual()

    assert unusual(*[GATHER, REWARDS] * 9) is True
    assert unusual(*[GATHER, REDUCE] * 9, REWARDS) is False


@pytest.mark.parametrize(
    ("entries", "longest_gap_s"), [(LEAST_ENTRIES, 2.0), (LEAST_ENTRIES - 1, None)]
)
def test_fewer_operations_than_that_are_no_history(
    entries: int, longest_gap_s: float | None
) -> None:
    pace = Pace(0, entries=entries, longest_gap_ns=2 * 10**9)
    assert recorded_history(Matching(paces=(pace,))).longest_gap_s == longest_gap_s
