"""What a process says of itself: its rank, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from grpo_doctor_probes.discover.candidates import Candidate, find_candidates
from grpo_doctor_probes.discover.scan import scan
from tests.unit.probes.discover.fakeproc import FakeProc, process


def candidate(
    environment: Mapping[str, str], command: str = "python t.py", **more: object
) -> Candidate:
    own = process(command=command, environment=environment)
    return Candidate(own, "unknown", environment, **{"torch": True, **more})  # type: ignore[arg-type]


def of_slurm(number: int, of: int, **more: str) -> dict[str, str]:
    return {"SLURM_PROCID": str(number), "SLURM_NTASKS": str(of), **more}


@pytest.mark.parametrize(
    ("environment", "more", "rank", "world"),
    [
        ({}, {}, None, None),
        ({"RANK": "3"}, {}, None, None),  # any program may have a RANK
        ({"RANK": "3"}, {"grouped": True}, 3, None),
        ({"RANK": "3", "WORLD_SIZE": "4"}, {}, 3, 4),
        ({"RANK": "3", "LOCAL_RANK": "1"}, {}, 3, None),
        ({"WORLD_SIZE": "4"}, {}, None, 4),
        ({"RANK": "65535", "WORLD_SIZE": "65535"}, {}, 65535, 65535),
        ({"RANK": "65536", "WORLD_SIZE": "65536"}, {}, None, None),
        ({"RANK": "-1", "WORLD_SIZE": "1 "}, {}, None, None),
        (of_slurm(0, 1), {}, None, None),
        (of_slurm(0, 2), {}, 0, 2),
        (of_slurm(1, 2), {}, 1, 2),
        (of_slurm(2, 2), {}, None, None),
        (of_slurm(1, 2), {"torch": False}, None, None),
        (of_slurm(1, 2), {"command": "ray::Actor"}, None, None),
        (of_slurm(1, 2, WORLD_SIZE="8"), {}, 1, 8),
        ({"SLURM_PROCID": "1"}, {}, None, None),
        ({"SLURM_NTASKS": "2"}, {}, None, None),
    ],
)
def test_rank_and_world(
    environment: dict[str, str], more: dict[str, object], rank: int | None, world: int | None
) -> None:
    own = candidate(environment, **more)  # type: ignore[arg-type]
    assert (own.rank, own.world) == (rank, world)
    assert own.set_late is ("RANK" not in environment)


def test_who_is_looked_at(host: FakeProc) -> None:
    ranked = {"RANK": 0, "WORLD_SIZE": 2}
    host.add(100, 50, "python t.py", torch=True)
    host.add(101, 50, "python small.py")
    host.add(102, 50, "python t.py", ranked)
    host.add(103, 50, "python gone.py", ranked, torch=True, state="Z")
    host.add(104, 50, "node t.py", ranked, torch=True, program="/usr/bin/node")
    host.add(105, 50, "python ours.py", ranked, torch=True)
    host.add(106, 50, "python no_torch.py", torch=True)
    (host.root / "106" / "maps").write_text("")
    host.add(107, 50, "python /v/bin/torchrun t.py")
    host.add(108, 50, "ray::Actor.train", ranked)
    host.add(109, 50, "ray::Actor.train", {"RAY_JOB_ID": "01"}, torch=True)
    candidates = find_candidates(host.root, scan(host.root), frozenset({105}))
    facts = {pid: (each.kind, each.rank, each.torch) for pid, each in candidates.items()}
    assert facts == {
        100: ("unknown", None, True),
        102: ("unknown", 0, False),
        107: ("launcher", None, False),
        108: ("unknown", 0, False),
        109: ("unknown", None, True),
    }


@pytest.mark.parametrize(
    ("parent", "is_rank"), [("python /v/bin/torchrun t.py", True), ("bash", False), (None, False)]
)
def test_what_a_launcher_starts_is_a_rank_though_it_may_not_be_read(
    host: FakeProc, parent: str | None, is_rank: bool
) -> None:
    if parent is not None:
        host.add(100, 50, parent)
    host.add(101, 100, "python t.py", torch=True)
    processes = scan(host.root)
    processes[101] = replace(processes[101], readable=False)
    match = find_candidates(host.root, processes, frozenset()).get(101)
    assert (match is not None) is is_rank
    assert match is None or (match.kind, match.torch, match.grouped) == ("unknown", True, True)
