"""Which of the candidates are ranks, which only inherit what a rank was told, and who made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import Kind
from grpo_doctor_probes.discover.ranks import Cast, cast
from grpo_doctor_probes.discover.scan import Process, Tree
from tests.unit.probes.discover.fakeproc import process

ADDRESS = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(3)")


@dataclass
class Host:
    """Processes are added one by one; each starts a tick after the one before."""

    processes: dict[int, Process] = field(default_factory=dict)
    candidates: dict[int, Candidate] = field(default_factory=dict)

    def add(
        self,
        pid: int,
        parent: int,
        command: str | Sequence[str] = "python t.py",
        *,
        rank: int | None = None,
        late: bool = False,
        torch: bool = True,
        grouped: bool = False,
        kind: Kind = "unknown",
        image: int | None = None,
        forked: bool = False,
        python: bool = True,
        is_candidate: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """A process; `late`: its rank was set after exec; `is_candidate`: it is a candidate."""
        variables = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": "4", **ADDRESS}
        variables |= environment or {}
        words = command.split() if isinstance(command, str) else command
        self.processes[pid] = process(
            pid, parent, arguments=tuple(words), started_ticks=len(self.processes), python=python,
            forked=forked, image=None if image is None else (image, 0),
            environment={} if late else variables,
        )  # fmt: skip
        if is_candidate:
            self.candidates[pid] = Candidate(
                self.processes[pid], kind, variables, torch=torch, grouped=grouped
            )

    def cast(self) -> Cast:
        return cast(self.candidates, Tree(self.processes), frozenset())


@pytest.fixture
def host() -> Host:
    """A host with its first process and a shell."""
    made = Host()
    made.add(1, 0, "/sbin/init", python=False, is_candidate=False)
    made.add(50, 1, "bash", python=False, is_candidate=False)
    return made


@pytest.mark.parametrize(
    ("parent", "child", "makes"),
    [
        ({"image": 80}, {"image": 80, "late": True}, True),
        ({"image": 80}, {"image": 81, "late": True}, False),
        ({}, {"late": True}, False),  # no image is known of both
        ({}, {"late": True, "command": SPAWNED}, True),
        ({}, {}, True),  # it gave the number
        ({"python": False}, {}, False),
        ({"environment": {"RANK": "0"}}, {}, False),  # the child may have inherited it
        ({"environment": {"RANK": "1"}}, {}, True),
        ({"environment": {"RANK": "1"}}, {"late": True}, False),
        ({"is_candidate": True, "kind": "engine-worker"}, {}, False),
        ({"is_candidate": True, "kind": "launcher"}, {}, False),  # known without us
        ({"is_candidate": True, "kind": "unknown"}, {}, True),
    ],
)
def test_a_parent_that_makes_ranks_is_a_launcher(
    host: Host, parent: dict[str, Any], child: dict[str, Any], makes: bool
) -> None:
    host.add(80, 50, "python go.py", **{"is_candidate": False, "torch": False, **parent})
    host.add(100, 80, **{"rank": 0, "grouped": True, **child})
    assert host.cast().launchers == ({80} if makes else set())


@pytest.mark.parametrize(("between", "ranks"), [("helper", {100}), ("launcher", {100, 101})])
def test_a_number_that_a_launcher_gave_again_is_another_ranks(
    host: Host, between: Kind, ranks: set[int]
) -> None:
    host.add(100, 50, rank=0, grouped=True)
    host.add(90, 100, kind=between, environment={"RANK": "0"})
    host.add(101, 90, rank=0, environment={"MASTER_PORT": "1"})
    assert host.cast().ranks.keys() == ranks


def test_one_without_a_number_is_a_rank_if_it_is_in_a_group_and_below_no_rank(host: Host) -> None:
    host.add(100, 50, rank=0)
    host.add(101, 50)
    host.add(110, 50, grouped=True)
    host.add(120, 50, grouped=True, torch=False)
    for parent in (100, 110):
        for number in (1, 2):
            host.add(parent + number + 1, parent, grouped=True)
    assert host.cast().ranks == {100: 0, 110: None}


def test_who_sets_ranks_one_after_the_other_and_forks_is_none(host: Host) -> None:
    """After `for r in range(2): environ["RANK"] = str(r); fork()` the parent has the last one."""
    host.add(10, 1, rank=1, late=True, image=10)
    for rank in range(2):
        host.add(11 + rank, 10, rank=rank, late=True, image=10, forked=True)
    assert host.cast().ranks == {11: 0, 12: 1}


def test_a_task_of_slurm_that_starts_the_launcher_of_ranks_is_none(host: Host) -> None:
    task = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    host.add(10, 1, "python cli.py", environment=task)
    host.add(11, 10, "python /v/bin/torchrun t.py", kind="launcher", environment=task)
    host.add(12, 11, rank=2, environment=task)
    assert host.cast().ranks == {12: 2}
