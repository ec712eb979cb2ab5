"""Whom a send or receive names: a rank of the job, or one of a group."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor_probes.evidence import CallArguments
from tests.evidence import EvidenceBuilder, collective


@pytest.mark.parametrize(
    ("calls", "rank"),
    [
        ([{"src": "3"}], 3),
        # gloo lists no members: the first of a group that nobody knows.
        ([{"src": "None", "group_src": "0"}], None),
        ([{"src": "None", "group_src": "0"}, {"src": "2"}], 2),
        ([{"src": "9" * 9}], 999_999_999),
        ([{"src": "9" * 10}], None),
        ([{"src": "9" * 5000}], None),
    ],
)
def test_whom_rank_3_receives_from(calls: list[dict[str, str]], rank: int | None) -> None:
    """By its arguments, innermost call first."""
    build = EvidenceBuilder()
    build.elsewhere(3, collective("recv"))
    build.arguments = [CallArguments(103, "recv", values) for values in calls]
    build.arguments.append(CallArguments(101, "recv", {"src": "1"}))  # of another rank
    model = view.build(build.build())
    assert partner_of(model, model.by_rank[3]) == rank
    assert rank is not None or 0 not in diagnose(build.build()).verdict.culprits
