"""Numbers of ranks that do not say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from grpo_doctor_probes.discover.assemble import expected_ranks, number_all, sizes_of
from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import Sizes
from grpo_doctor_probes.discover.scan import Process


def processes(*pids: int, parent: int = 1) -> Mapping[int, Process]:
    return {
        pid: Process(
            pid=pid, parent=parent, group=pid, session=pid, state="S", name="", started_ticks=5
        )
        for pid in pids
    }


UNKNOWN = "process 12 is a rank of unknown number."
ORDER = "No process has a rank number: they are numbered in the order of their start."


@pytest.mark.parametrize(
    ("ranks", "expected", "numbers", "note"),
    [
        ({10: 3, 12: 1}, range(4), [3, 1], ""),
        ({10: 0, 12: None}, range(2), [0, 1], "process 12 is rank 1 (no other is free)."),
        ({10: 0, 12: None}, range(3), [0, None], UNKNOWN),
        ({10: 0, 12: None}, (), [0, None], UNKNOWN),
        ({12: None, 10: None}, (), [1, 0], ORDER),
        ({12: None}, (), [0], ORDER),
    ],
)
def test_numbers_that_are_known_stay_and_others_are_given_where_they_can_be(
    ranks: dict[int, int | None], expected: Sequence[int], numbers: list[int | None], note: str
) -> None:
    given, guessed = number_all(ranks, processes(10, 12), expected)
    assert ([given[pid] for pid in ranks], guessed) == (numbers, note)


def test_processes_of_several_parents_have_no_order() -> None:
    strangers = {**processes(10), **processes(12, parent=2)}
    nothing = ({10: None, 12: None}, "No process has a rank number.")
    assert number_all({12: None, 10: None}, strangers, []) == nothing


def trainer_with(**environment: str) -> Candidate:
    return Candidate(processes(7)[7], "unknown", environment)


def launcher(command: str) -> Process:
    return Process(7, 1, 7, 7, "S", "python", 1, arguments=tuple(command.split()))


TORCHRUN = launcher("torchrun --nproc_per_node 4 --nnodes 2 t.py")


@pytest.mark.parametrize(
    ("ranks", "core", "address", "sizes"),
    [
        ([], [], "", Sizes(None, None)),
        ([{"WORLD_SIZE": "8"}], [], "10.0.0.1:29500", Sizes(8, None)),
        ([{"WORLD_SIZE": "8"}], [], "127.0.0.1:29500", Sizes(8, 8)),
        ([{"WORLD_SIZE": "8"}], [], "localhost:29500", Sizes(8, 8)),
        ([{"WORLD_SIZE": "8"}], [], "localhost.example:29500", Sizes(8, None)),
        ([{"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}], [], "127.0.0.1:1", Sizes(8, 4)),
        ([{"WORLD_SIZE": "8"}, {"WORLD_SIZE": "9"}], [], "", Sizes(9, None)),
        # A host with two agents has the ranks of both.
        (
            [
                {"LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0"},
                {"LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0"},
                {"LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"},
            ],
            [], "", Sizes(None, 6),
        ),
        ([{}], [TORCHRUN], "", Sizes(8, 4)),
        ([{"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "2"}], [TORCHRUN], "", Sizes(16, 2)),
        ([{}], [launcher("torchrun --nproc_per_node gpu t.py"), TORCHRUN], "", Sizes(8, 4)),
    ],
)  # fmt: skip
def test_how_many_ranks_there_are_is_what_they_say_or_else_what_launchers_were_told(
    ranks: list[dict[str, str]], core: list[Process], address: str, sizes: Sizes
) -> None:
    assert sizes_of([trainer_with(**environment) for environment in ranks], core, address) == sizes


@pytest.mark.parametrize(
    ("sizes", "groups", "expected"),
    [
        (Sizes(4, 4), ["1"], [0, 1, 2, 3]),
        (Sizes(4, 4), [], [0, 1, 2, 3]),
        (Sizes(8, 2), ["0"], [0, 1]),
        (Sizes(8, 2), ["3", "3"], [6, 7]),
        (Sizes(None, 2), ["1"], [2, 3]),
        (Sizes(8, 2), ["1", "2"], []),
        (Sizes(8, 2), ["1", ""], []),
        (Sizes(8, 2), [], []),
        (Sizes(None, None), ["1"], []),
    ],
)
def test_the_ranks_that_a_host_should_have(
    sizes: Sizes, groups: list[str], expected: list[int]
) -> None:
    assert expected_ranks([trainer_with(GROUP_RANK=group) for group in groups], sizes) == expected
