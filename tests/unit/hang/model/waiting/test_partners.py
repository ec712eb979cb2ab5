"""Whom a send or receive names: a rank of the job, or one of a group."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor_probes.evidence import CallArguments, Evidence
from tests.evidence import EvidenceBuilder, collective


def receiving(rank: int, *calls: dict[str, str], ranks: int = 4) -> EvidenceBuilder:
    """This rank is in a receive with these arguments, innermost call first."""
    build = EvidenceBuilder(ranks=ranks)
    build.elsewhere(rank, collective("recv"))
    build.arguments = [CallArguments(100 + rank, "recv", values) for values in calls]
    return build


def partner(evidence: Evidence, rank: int) -> int | None:
    model = view.build(evidence)
    return partner_of(model, model.by_rank[rank])


def test_a_rank_of_the_job_is_what_it_says() -> None:
    assert partner(receiving(1, {"src": "3"}).build(), 1) == 3


def test_a_rank_of_a_group_is_no_rank_of_the_job() -> None:
    """gloo lists no members: rank 3 receives from the first of a group that nobody knows."""
    build = receiving(3, {"src": "None", "group_src": "0"})
    assert partner(build.build(), 3) is None
    assert 0 not in diagnose(build.build()).verdict.culprits


def test_a_rank_of_the_job_outside_of_a_rank_of_its_group_counts() -> None:
    build = receiving(3, {"src": "None", "group_src": "0"}, {"src": "2"})
    assert partner(build.build(), 3) == 2


def test_the_arguments_of_another_rank_do_not_count() -> None:
    build = receiving(3)
    build.arguments = [CallArguments(101, "recv", {"src": "2"})]
    assert partner(build.build(), 3) is None


def test_a_number_that_is_no_rank_is_nobody() -> None:
    assert partner(receiving(1, {"src": "9" * 5000}).build(), 1) is None


def test_a_number_of_nine_digits_is_the_longest_that_may_be_a_rank() -> None:
    assert partner(receiving(1, {"src": "9" * 9}).build(), 1) == 999_999_999
    assert partner(receiving(1, {"src": "9" * 10}).build(), 1) is None
