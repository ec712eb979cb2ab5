"""What is said of the recorded jobs: as good as known, and no worse."""

from __future__ import annotations

import pytest

from tests.corpus import known, replay
from tests.corpus.score import Answer


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return replay.replay_stored()


@pytest.mark.heavy
@pytest.mark.slow
def test_every_recorded_job_is_answered_as_well_as_known(answers: list[Answer]) -> None:
    """`python -m tests.corpus replay` says what is wrong; `accept` what is known to be."""
    assert known.wrong_of(answers) == known.known_wrong()


@pytest.mark.heavy
@pytest.mark.slow
def test_no_recorded_job_raises(answers: list[Answer]) -> None:
    assert {answer.name: answer.summary for answer in answers if answer.state == "error"} == {}


@pytest.mark.heavy
@pytest.mark.slow
def test_no_healthy_job_is_called_stuck(answers: list[Answer]) -> None:
    calm = [answer for answer in answers if set(answer.wanted.states) <= {"healthy", "slow"}]
    called = {answer.name for answer in calm if answer.state in ("stuck", "dead")}
    assert called == set()
