"""Numbers of ranks that do not say them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.discover.world import main_world, number_all


def processes(*pids: int, parent: int = 1) -> Mapping[int, Process]:
    return {
        pid: Process(
            pid=pid, parent=parent, group=pid, session=pid, state="S", name="", started_ticks=5
        )
        for pid in pids
    }


def test_numbers_that_are_known_stay() -> None:
    found = number_all({10: 3, 11: 1}, processes(10, 11), [0, 1, 2, 3])
    assert (found.ranks, found.notes) == ({10: 3, 11: 1}, ())


def test_as_many_free_as_unknown() -> None:
    found = number_all({10: 0, 11: None, 12: 2, 13: None}, processes(10, 11, 12, 13), range(4))
    assert found.ranks == {10: 0, 11: 1, 12: 2, 13: 3}
    assert "no other is free" in found.notes[0]


def test_only_one_is_free_between_its_neighbours() -> None:
    found = number_all({10: 0, 12: None, 14: 2}, processes(10, 12, 14), range(8))
    assert found.ranks == {10: 0, 12: 1, 14: 2}


def test_several_are_possible() -> None:
    found = number_all({10: 0, 12: None, 14: 4}, processes(10, 12, 14), range(8))
    assert found.ranks[12] is None
    assert found.notes == ("process 12 is a rank of unknown number.",)


def test_none_is_known() -> None:
    found = number_all({12: None, 10: None}, processes(10, 12), [])
    assert found.ranks == {10: 0, 12: 1}
    strangers = {**processes(10), **processes(12, parent=2)}
    assert number_all({12: None, 10: None}, strangers, []).ranks == {10: None, 12: None}


def trainers(*rows: tuple[int, int | None, int, int]) -> tuple[dict[int, Candidate], Cast]:
    """Rows of process, rank, port of the rendezvous and attempt; they started in this order."""
    members = {
        pid: Candidate(
            Process(pid, 1, pid, pid, "S", "python", started_ticks=ticks),
            "rank",
            {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
            },
        )
        for ticks, (pid, _, port, attempt) in enumerate(rows)
    }
    return members, Cast({pid: rank for pid, rank, _, _ in rows}, frozenset(), {})


@pytest.mark.parametrize(
    ("rows", "main"),
    [
        ([(1, 0, 5, 0), (2, 1, 5, 0)], {1, 2}),
        ([(1, 0, 5, 0), (2, 1, 6, 0)], {1, 2}),  # the numbers say that they are one group
        ([(1, 0, 5, 0), (2, 0, 6, 0), (3, 1, 6, 0)], {2, 3}),  # the largest
        ([(1, 0, 5, 0), (2, 0, 6, 0)], {1}),  # the older of two
        ([(1, 0, 5, 0), (2, 0, 5, 1)], {2}),  # the launcher's last attempt
        ([(1, 0, 5, 0), (2, 0, 5, 0), (3, 1, 5, 0)], {1, 3}),  # one process for each rank
        ([(1, 0, 5, 0), (2, 0, 6, 0), (3, 1, 6, 0), (4, None, 7, 0)], {2, 3, 4}),
    ],
)
def test_the_group_that_trains(
    rows: list[tuple[int, int | None, int, int]], main: set[int]
) -> None:
    members, of_host = trainers(*rows)
    trains, others = main_world(members, of_host)
    assert (set(trains), set(others)) == (main, set(members) - main)
