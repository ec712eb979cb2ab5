"""Members of a job: their roles, what is noted of them, and numbers of ranks that say none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from grpo_doctor_probes.discover import find_jobs
from grpo_doctor_probes.discover.assemble import expected_ranks, number_all, sizes_of
from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import Sizes
from grpo_doctor_probes.discover.scan import Process
from tests.unit.probes.discover.fakeproc import FakeProc, process, rank_environment


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["python"], [103]),
        (["pt_main_thread"], [103]),
        (["trainer"], [103]),  # called like the others
        (["bash"], [103]),  # one rank is absent, and nothing else is left of it
        (["bash", "python"], [104]),
        (["python", "python"], [103]),  # no more than are absent
        (["bash", "bash"], [103]),
    ],
)
def test_a_zombie_of_the_launcher_was_a_rank(
    host: FakeProc, names: list[str], ranks: list[int]
) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 3 t.py")
    for rank in range(2):
        host.add(
            101 + rank, 100, "python t.py", rank_environment(rank, 3), torch=True, name="trainer"
        )
    for number, name in enumerate(names):
        host.add(103 + number, 100, "", name=name, state="Z")
    (job,) = find_jobs((), host.root)
    assert [member.pid for member in job.ranks()] == [101, 102, *ranks]


@pytest.mark.parametrize(
    ("ranks", "note"),
    [((0, 1), None), ((0, 2), "Ranks [2] are not below the world size of 2."), ((3, 2), "[2, 3]")],
)
def test_ranks_beyond_the_world_are_noted(
    host: FakeProc, ranks: tuple[int, int], note: str | None
) -> None:
    host.add(100, 50, "python /v/bin/torchrun --nproc_per_node 2 t.py")
    for number, rank in enumerate(ranks):
        environment = {**rank_environment(rank, 2), "LOCAL_RANK": number}
        host.add(101 + number, 100, "python t.py", environment, torch=True)
    (job,) = find_jobs((), host.root)
    assert any(note in text for text in job.notes) if note else not job.notes
    assert job.ranks_missing == tuple({0, 1} - set(ranks))


def started_together(parent_of_the_second: int = 1) -> dict[int, Process]:
    second = process(12, parent_of_the_second, name="", started_ticks=5)
    return {10: process(10, name="", started_ticks=5), 12: second}


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
    given, guessed = number_all(ranks, started_together(), expected)
    assert ([given[pid] for pid in ranks], guessed) == (numbers, note)


def test_processes_of_several_parents_have_no_order() -> None:
    nothing = ({10: None, 12: None}, "No process has a rank number.")
    assert number_all({12: None, 10: None}, started_together(2), []) == nothing


def trainer_with(**environment: str) -> Candidate:
    # What may not be read says nothing.
    return Candidate(replace(process(), readable=bool(environment)), "unknown", environment)


AGENT = {"LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0"}
TORCHRUN = process(command="torchrun --nproc_per_node 4 --nnodes 2 t.py")


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
        ([AGENT, AGENT, {"LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}], [], "", Sizes(None, 6)),
        ([{}], [TORCHRUN], "", Sizes(8, 4)),
        ([{"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "2"}], [TORCHRUN], "", Sizes(16, 2)),
        ([{}], [process(command="torchrun --nproc_per_node gpu t.py"), TORCHRUN], "", Sizes(8, 4)),
    ],
)
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
