"""Whom a visit takes for ranks where a program started them itself and nothing has their number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.collection.joining import joining, settled
from grpo_doctor_probes.discover.assemble import NUMBERED_BY_START
from grpo_doctor_probes.evidence import (
    CallArguments,
    Evidence,
    Job,
    Look,
    Member,
    ProcessLook,
    PythonThread,
    Stack,
)
from tests.evidence import frames

LIB = "/usr/lib/python3.11/multiprocessing"
SPAWN = (f"_main {LIB}/spawn.py:135", "<module> <string>:1")
START = (f"run {LIB}/process.py:108", f"_bootstrap {LIB}/process.py:314", *SPAWN)
INIT = "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:1899"
MAIN = ("main /home/me/t.py:9", "_wrap /x/site-packages/torch/multiprocessing/spawn.py:87", *START)
RANK = (INIT, *MAIN)
LATE = ("load /home/me/t.py:3", *MAIN)
IMPORTS = ("<module> /home/me/t.py:1", f"prepare {LIB}/spawn.py:246", *SPAWN)
MANAGER = (f"_run_server {LIB}/managers.py:600", *START)
TRACKER = (f"main {LIB}/resource_tracker.py:227", "<module> <string>:1")
FORKED = ("main /home/me/t.py:9", "<module> /home/me/t.py:30")
DEAD: tuple[str, ...] = ()


def seen(stacks: dict[int, tuple[str, ...]], known: dict[int, tuple[int, int]]) -> Job:
    """Of processes that 100 started, in order of their numbers, those with a number known."""
    members = [Member(100, 50, 1, "rank", "python", "python t.py", rank=0)]
    members += [Member(pid, 100, pid, "helper", "python", "python t.py") for pid in stacks]
    members.append(Member(900, max(stacks), 900, "helper", "python", "python tool.py"))
    evidence = Evidence(
        Job("vm", tuple(members), notes=(NUMBERED_BY_START,)),
        taken_unix_ns=1,
        looks=(Look(1, tuple(ProcessLook(p, 1, "S" if s else "Z") for p, s in stacks.items())),),
        stacks=(
            tuple(
                Stack(pid, 1, (PythonThread(pid, "MainThread", frames(*stack)),))
                for pid, stack in stacks.items()
                if stack
            ),
        ),
        arguments=tuple(
            CallArguments(pid, "init_process_group", {"rank": str(r), "world_size": str(world)})
            for pid, (r, world) in known.items()
        ),
    )
    assert list(joining(evidence)) == [pid for pid, stack in stacks.items() if INIT in stack]
    assert not list(joining(replace(evidence, job=replace(evidence.job, world_size=2))))
    return settled(evidence)


@pytest.mark.parametrize(
    ("stacks", "known", "ranks"),
    [
        ({101: LATE, 102: RANK, 103: RANK}, {102: (1, 3), 103: (2, 3)}, [101, 102, 103]),
        ({101: RANK, 102: IMPORTS, 103: RANK}, {101: (0, 3), 103: (2, 3)}, [101, 102, 103]),
        ({101: RANK, 102: RANK, 103: DEAD}, {101: (0, 3), 102: (1, 3)}, [101, 102, 103]),
        # Of another function: a manager's server; and actors beyond the size of the group.
        ({101: MANAGER, 102: RANK, 103: LATE}, {102: (0, 2)}, [102, 103]),
        ({101: RANK, 102: LATE, 103: LATE, 104: LATE}, {101: (0, 2)}, [101, 102]),
        ({99: TRACKER, 101: RANK}, {101: (0, 2)}, [101, None]),
        # A worker that ended is between them, or they were started in another order.
        ({101: RANK, 102: DEAD, 103: RANK}, {101: (0, 2), 103: (1, 2)}, [101, 103]),
        ({101: RANK, 102: LATE, 103: RANK}, {101: (2, 3), 103: (0, 3)}, [103, None, 101]),
        ({101: RANK, 102: LATE}, {101: (2, 4)}, [None, None, 101, 102]),
        ({101: FORKED, 102: (INIT, *FORKED)}, {102: (1, 2)}, [101, 102]),
    ],
)
def test_who_was_started_for_the_same_function_is_a_rank_that_has_not_joined(
    stacks: dict[int, tuple[str, ...]],
    known: dict[int, tuple[int, int]],
    ranks: list[int | None],
) -> None:
    job = seen(stacks, known)
    pids = {member.rank: member.pid for member in job.ranks()}
    assert [pids.get(rank) for rank in range(len(ranks))] == ranks
    missing = tuple(rank for rank, pid in enumerate(ranks) if pid is None)
    assert (job.ranks_missing, job.local_ranks) == (missing, None if missing else len(ranks))
    assert (job.world_size, job.notes, job.members[0].role) == (len(ranks), (), "launcher")
    rank = {member.pid: member.rank for member in job.members}
    assert rank[900] == rank[max(stacks)]  # the tool helps the rank that started it


@pytest.mark.parametrize("known", [{}, {101: (0, 2), 102: (1, 3)}, {101: (-1, -1)}])
def test_without_one_size_nothing_changes(known: dict[int, tuple[int, int]]) -> None:
    job = seen({101: RANK, 102: RANK}, known)
    assert (job.world_size, job.notes) == (None, (NUMBERED_BY_START,))
