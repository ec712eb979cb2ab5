"""Recorded jobs that go on, and some that do not."""

from __future__ import annotations

import pytest

from tests.unit.hang.recorded import held_to_the_truth


@pytest.mark.parametrize("family", ["gloo-calm", "ms-swift-4-6-0"])
def test_a_job_that_goes_on_is_not_called_stuck(family: str) -> None:
    for answer in held_to_the_truth(family):
        if set(answer.wanted.states) <= {"healthy", "slow"}:
            assert answer.state not in ("stuck", "dead"), answer.name


@pytest.mark.parametrize("family", ["gloo-acceptance", "gloo-control"])
def test_a_hang_is_called_stuck_with_a_confidence_that_says_so(family: str) -> None:
    for answer in held_to_the_truth(family):
        if not set(answer.wanted.states) <= {"stuck", "dead"}:
            continue
        assert answer.state in ("stuck", "dead"), answer.name
        assert answer.confidence > 0.5, answer.name
        assert answer.summary.endswith("."), answer.name
