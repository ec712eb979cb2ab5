"""One collective, and ranks that mean different sources of it."""

from __future__ import annotations

from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import STEPS, EvidenceBuilder, collective
from tests.verdicts import verdict


def broadcast(**sources: int) -> Verdict:
    """`r2=1`: rank 2 is in a broadcast of rank 1; who is not named has left it for a barrier."""
    meant = {int(name[1:]): root for name, root in sources.items()}
    build = EvidenceBuilder()
    for rank in range(4):
        stays = rank in meant
        build.rank(rank).stack = collective("broadcast" if stays else "barrier")
        build.joins[rank] = []
        build.calls(rank, "broadcast", done=not stays)
        if not stays:
            build.calls(rank, "barrier", number=STEPS + 1)
    build.arguments = [
        CallArguments(100 + rank, "broadcast", {"src": str(root)}) for rank, root in meant.items()
    ]
    return verdict(build)


def test_who_waits_for_a_source_that_has_left_means_another_one_than_the_rest() -> None:
    found = broadcast(r0=0, r2=1)
    assert (found.state, found.cause, found.culprits) == ("stuck", "collective-mismatch", (2,))
    assert "with rank 1 as its source" in found.summary


def test_of_several_sources_the_one_that_fewer_mean_is_wrong() -> None:
    assert broadcast(r0=0, r1=0, r2=2, r3=0).culprits == (2,)


def test_of_two_that_mean_themselves_either_may_be_wrong() -> None:
    found = broadcast(r0=0, r2=2)
    assert (found.cause, found.culprits) == ("collective-mismatch", (0, 2))


def test_ranks_that_mean_the_same_source_do_not_differ() -> None:
    assert broadcast(r0=0, r2=0).cause != "collective-mismatch"
