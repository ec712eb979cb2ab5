"""Ranks that the others wait for at the start of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.process import missing_ranks
from grpo_doctor_probes.evidence import Evidence, Placement
from tests.evidence import BETWEEN_S, FIRST_NS, UNIX_NS, EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import only, proposed

JOINING = frames(
    "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
    "main /home/me/train.py:5",
)


def started(build: EvidenceBuilder, rank: int, ago_s: float) -> None:
    process = build.rank(rank)
    ticks = int((FIRST_NS / 1e9 - ago_s) * 100)
    process.member = replace(process.member, started_ticks=ticks)


# For how long a rank may be missing.


def joining(lost: int, still_s: float, *begun_s: float) -> EvidenceBuilder:
    """A job of four without this rank; the others were started so long before the last look."""
    build = EvidenceBuilder(recorded=False)
    build.lose(lost)
    for rank, ago_s in zip(sorted({0, 1, 2, 3} - {lost}), begun_s, strict=True):
        build.rank(rank).stack, build.rank(rank).still_s = JOINING, still_s
        started(build, rank, ago_s - BETWEEN_S)
    return build


@pytest.mark.parametrize(
    ("lost", "still_s", "begun_s", "never"),
    [
        # Others after it were started: five seconds after the last of them.
        (0, 1.0, (7.0, 6.0, 5.25), True),
        (0, 1.0, (7.0, 6.0, 4.75), False),
        (0, 5.0, (2.0, 2.0, 2.0), False),
        (0, 5.25, (2.0, 2.0, 2.0), True),  # somebody waits for so long already
        # It may be the next to be started: five, and three times as long as the others took.
        (3, 1.0, (9.25, 8.75, 8.25), True),
        (3, 1.0, (9.0, 8.0, 7.5), False),
        (3, 1.0, (9.25, 9.25, 9.25), True),
    ],
)
def test_a_rank_is_missing_for_good_once_its_launcher_has_started_all(
    lost: int, still_s: float, begun_s: tuple[float, ...], never: bool
) -> None:
    label = only(missing_ranks, joining(lost, still_s, *begun_s))
    assert (label.cause, label.culprits) == ("rank-missing", (lost,))
    assert (label.liveness == "never-wakes") == never


@pytest.mark.parametrize(
    ("world", "still_s", "ago_s", "never"),
    [
        (4, 1.0, 30.0, True),
        (8, 1.0, 30.0, False),
        (8, 1.0, 119.5, False),
        (8, 1.0, 120.5, True),
        (8, 120.0, 30.0, False),
        (8, 120.5, 30.0, True),
    ],
)
def test_hosts_that_are_started_one_by_one_are_waited_for_two_minutes(
    world: int, still_s: float, ago_s: float, never: bool
) -> None:
    """Rank 3 should be on this host, where there are four."""
    evidence = joining(3, still_s, ago_s, ago_s, ago_s).build()
    members = tuple(replace(member, local_rank=member.rank) for member in evidence.job.members)
    missing = tuple(range(3, world))
    job = replace(evidence.job, members=members, world_size=world, ranks_missing=missing)
    labels = propose_all(replace(evidence, job=job))
    assert [label.culprits for label in labels] == [(3,), (4, 5, 6, 7)][: world // 4]
    assert {label.liveness == "never-wakes" for label in labels} == {never}


def propose_all(evidence: Evidence) -> tuple[Candidate, ...]:
    return proposed(missing_ranks, evidence)


# Ranks of other hosts.


def half_seen(*stacks: str, placements: tuple[Placement, ...] = ()) -> Evidence:
    """Two of four ranks; the others may be on another host. Stacks by name."""
    build = EvidenceBuilder(recorded=False)
    for rank in (2, 3):
        build.lose(rank)
    build.local_ranks = 2
    for rank, name in enumerate(stacks):
        process = build.rank(rank)
        process.stack = JOINING if name == "joins" else collective(name)
        process.still_s = 30.0
        started(build, rank, 30.0)
    evidence = build.build()
    return replace(evidence, job=replace(evidence.job, placements=placements))


@pytest.mark.parametrize(("hosts", "several"), [(1, False), (2, True)])
def test_hosts_that_were_looked_at_are_told_from_the_one_that_was(
    hosts: int, several: bool
) -> None:
    placements = tuple(Placement(f"node{number}") for number in range(hosts))
    (label,) = propose_all(half_seen("barrier", "barrier", placements=placements))
    assert label.whole.startswith("the inspected ranks" if several else "the ranks of this")
    assert ("not on any inspected host" in label.whole) == several


def at_rendezvous(*placements: Placement, missing: tuple[int, ...] = (2, 3)) -> list[Candidate]:
    evidence = half_seen("joins", "joins", placements=placements)
    return list(propose_all(replace(evidence, job=replace(evidence.job, ranks_missing=missing))))


def placed(host: str, *ranks: int, size: int | None = 4, ago_s: float = 0.0) -> Placement:
    taken_ns = UNIX_NS - int(ago_s * 1e9)
    return Placement(host, ranks=ranks, world_size=size, local_ranks=2, taken_unix_ns=taken_ns)


def test_hosts_that_were_started_with_other_world_sizes() -> None:
    (label,) = at_rendezvous(
        placed("a", 0, 1), placed("b", 2, 3), placed("c", 4, 5, size=6), placed("d", size=None)
    )
    assert (label.culprits, label.liveness) == ((4, 5), "never-wakes")
    assert label.whole == ("the hosts were started with different world sizes: 4 on a, b; 6 on c")
    alike = at_rendezvous(placed("a", 0, 1), placed("b", 4, 5))
    assert [candidate.whole for candidate in alike if "sizes" in candidate.whole] == []


@pytest.mark.parametrize(
    ("missing", "culprits", "nowhere"),
    [((2, 3), (2, 3), "; ranks 2, 3 were not started"), ((), (0, 1), "")],
)
def test_hosts_that_were_started_as_the_same_node(
    missing: tuple[int, ...], culprits: tuple[int, ...], nowhere: str
) -> None:
    (label,) = at_rendezvous(placed("b", 0, 1), placed("a", 0, 1), missing=missing)
    assert label.culprits == culprits
    assert label.whole == f"ranks 0, 1 were started twice, on a, b{nowhere}"
