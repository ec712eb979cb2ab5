"""Which bundles are of one job: by run id, number in the scheduler, ranks and meeting place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.multihost.join import DifferentJobsError, check_same_job
from grpo_doctor_probes.evidence import Job, Member, Placement
from tests.evidence import EvidenceBuilder

RANKS = (0, 1)


def fits(*jobs: Job) -> bool:
    """Whether bundles of these can be of one job."""
    evidence = EvidenceBuilder(ranks=2).build()
    try:
        check_same_job([replace(evidence, job=job) for job in jobs])
    except DifferentJobsError:
        return False
    return True


def job(
    host: str = "a",
    address: str = "",
    run_id: str = "",
    job_id: str = "",
    ranks: tuple[int, ...] = RANKS,
    world: int = 4,
) -> Job:
    members = tuple(Member(10 + rank, 1, 8, "rank", "python", "t.py", rank=rank) for rank in ranks)
    placement = Placement(host, run_id=run_id, job_id=job_id)
    return Job(host, members, world_size=world, address=address, placements=(placement,))


@pytest.mark.parametrize(
    ("first", "second", "fit"),
    [
        ({}, {}, True),
        ({"run_id": "r1"}, {"run_id": "r1"}, True),
        ({"run_id": "r1"}, {"run_id": "r2"}, False),
        ({"run_id": "r1"}, {"run_id": ""}, True),
        ({"run_id": "none"}, {"run_id": "r2"}, True),  # torchrun's default
        ({"run_id": "r1", "job_id": "1"}, {"run_id": "r1", "job_id": "2"}, True),
        ({"job_id": "1"}, {"job_id": "1"}, True),
        ({"job_id": "1"}, {"job_id": "2"}, False),
        ({"job_id": "1"}, {}, True),
        # Each has all its ranks.
        ({"world": 2}, {"world": 2, "host": "b"}, False),
        ({"world": 2}, {"world": 2}, True),
        ({"world": 2}, {"world": 4, "host": "b"}, True),
        ({"world": 2}, {"world": 2, "host": "b", "ranks": (2, 3)}, True),
        ({"world": 0, "ranks": ()}, {"world": 0, "ranks": (), "host": "b"}, True),
    ],
)
def test_papers(first: dict[str, str], second: dict[str, str], fit: bool) -> None:
    left, right = job(**first), job(**second)  # type: ignore[arg-type]
    assert fits(left, right) is fits(right, left) is fit


@pytest.mark.parametrize(
    ("first", "second", "fit"),
    [
        ("10.0.0.1:29500", "10.0.0.1:29500", True),
        ("10.0.0.1:29500", "10.0.0.1:29501", False),
        ("10.0.0.1:29500", "10.0.0.2:29500", False),
        ("10.0.0.1:29500", "", True),
        ("localhost:29500", "10.0.0.2:29500", True),
        ("127.0.0.7:29500", "node2:29500", True),
        ("[::1]:29500", "node2:29500", True),
        ("::1:29500", "node2:29500", True),
        ("ip6-localhost:29500", "node2:29500", True),
        (":29500", "node2:29500", True),
        ("node1:29500", "10.0.0.2:29500", True),  # a name and a number may be one host
        ("node1:29500", "node2:29500", False),
        ("Node1.cluster:29500", "node1:29500", True),
        ("[fd00::1]:29500", "[fd00::2]:29500", False),
        ("[fd00::1]:29500", "node2:29500", True),
    ],
)
def test_meeting_places(first: str, second: str, fit: bool) -> None:
    assert fits(job(address=first), job(address=second)) is fit
    assert fits(job(address=second), job(address=first)) is fit


def test_without_a_placement_only_the_meeting_place_tells() -> None:
    bare = replace(job(address="10.0.0.1:1", run_id="r1"), placements=())
    assert fits(bare, job(address="10.0.0.1:1", run_id="r2"))
    assert not fits(bare, job(address="10.0.0.2:1", run_id="r2"))


@pytest.mark.parametrize(
    ("count", "words"), [(8, "h0, h1, h2, h3, h4, h5, h6, h7:"), (9, "h7 and 1 more:")]
)
def test_jobs_are_named_by_their_hosts_and_what_tells_most(count: int, words: str) -> None:
    evidence = EvidenceBuilder(ranks=2).build()
    bundles = [
        replace(evidence, job=job(f"h{n}", job_id="5", run_id="r1" if n == 3 else ""))
        for n in range(count)
    ]
    check_same_job(bundles)
    strange = replace(evidence, job=job("z", address="10.0.0.1:1", job_id="6"))
    with pytest.raises(DifferentJobsError) as refusal:
        check_same_job([*bundles, strange])
    first, mine, other = str(refusal.value).split("\n")
    assert first == "These are bundles of 2 jobs; give those of one:"
    assert words in mine
    assert mine.endswith(": rendezvous unknown, run id r1, job 5")
    assert other == "  z: rendezvous 10.0.0.1:1, job 6"
