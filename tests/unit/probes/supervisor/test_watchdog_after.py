"""After a verdict: the job moves again, hangs again, ends, or is inspected a second time."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from grpo_doctor_probes.record import layout
from grpo_doctor_probes.supervisor.standing import FLOOR_S
from grpo_doctor_probes.supervisor.suspicion import MOST_RETRY_S, RETRY_S
from grpo_doctor_probes.supervisor.watchdog import AGAIN_NS
from tests.unit.probes.supervisor.headers_in_code import S, span
from tests.unit.probes.supervisor.watched import Watched, commanded


@pytest.mark.parametrize("state", ["healthy", "slow"])
def test_a_job_that_moves_again_is_reported_and_its_hang_is_not_learned(
    tmp_path: Path, state: str
) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.stand(50)
    job.begin_anew(1)
    job.look_finds(state)
    assert job.messages == ["the job moves again"]
    assert job.lengths.limit_s("reward", first=False) == FLOOR_S
    job.watchdog._command = commanded("stuck", "", 3)
    job.until_asked(60)
    job.answer()
    assert [hang.answer.folder.name for hang in job.hangs] == ["0", "1"]


@pytest.mark.parametrize(
    ("state", "cause", "code"), [("stuck", "", 3), ("slow", "unknown", 0), ("", "", 5)]
)
def test_what_looks_like_progress_is_inspected_later_and_later(
    tmp_path: Path, state: str, cause: str, code: int
) -> None:
    """A poll, or an error on the way out."""
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    asked_s = []
    for _ in range(4):
        while not job.is_looking():
            job.begin_anew(1)
            job.tick()
        asked_s.append(job.now_s)
        job.watchdog._command = commanded(state, cause, code)
        job.answer()
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == pytest.approx([RETRY_S, 2 * RETRY_S, 4 * RETRY_S], abs=1)
    assert (job.messages, len(job.hangs)) == ([], 1)
    assert [path.name for path in (tmp_path / "hangs").iterdir()] == ["0"]


def test_a_job_that_moves_without_a_sign_is_found_later_and_later(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    asked_s = [job.now_s]
    for _ in range(6):
        while not job.is_looking():
            job.tick()
        asked_s.append(job.now_s)
        job.answer()
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == pytest.approx([60, 60, 60, 120, 240, 480], abs=2)
    job.stand(MOST_RETRY_S)
    job.watchdog._command = commanded("healthy", "", 0)
    job.tick(1)
    job.answer()
    assert job.messages == ["the job moves again"]


def test_a_hang_for_another_reason_is_news(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.end(1, 9)
    job.look_finds("dead", "rank-dead", 3)
    assert [hang.answer.state for hang in job.hangs] == ["stuck", "dead"]
    assert job.messages == []


def test_a_hang_for_another_reason_is_over_when_its_own_culprit_moves(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.begin_anew(1)
    job.watchdog._command = commanded("stuck", "lock-held", 3, culprits=(0,))
    job.tick()
    job.answer()
    assert len(job.hangs) == 2
    job.begin_anew(0)
    job.look_finds("healthy")
    assert job.messages == ["the job moves again"]


def test_a_hang_is_not_over_when_a_rank_moves_that_is_not_the_culprit(tmp_path: Path) -> None:
    """A victim that gives up, and is ended by its launcher, has not moved the job."""
    job = Watched(tmp_path, "stuck", code=3)
    job.watchdog._command = commanded("stuck", "", 3, culprits=(0,))
    job.get_going()
    while not job.is_looking():  # rank 0 waits; rank 1 is late and suspected
        job.inside[0] = [span("all_gather", job.begun[0], layout.COLLECTIVE)]
        job.tick()
    job.answer()
    assert job.hangs[0].suspicion.ranks == (1,)
    job.begin_anew(1)
    job.stand(10)
    assert not job.is_looking()
    job.begin_anew(0)
    job.inside.clear()
    job.look_finds("healthy")
    assert job.messages == ["the job moves again"]


def test_a_second_look_is_taken_a_minute_later_and_says_what_it_saw(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.watchdog.look_again = True
    job.get_stuck()
    while not job.is_looking():
        job.tick()
    assert job.now_s * S - job.hangs[0].at_ns > AGAIN_NS
    job.answer()
    assert job.messages == ["a minute later: Rank 1 sleeps."]
    assert (tmp_path / "hangs/0-again/evidence").exists()
    job.stand(50)
    assert not job.is_looking()
    assert len(job.hangs) == 1


def test_a_second_look_that_takes_too_long_does_no_harm(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.watchdog.look_again = True
    job.get_stuck()
    job.watchdog._command = (sys.executable, "-c", "import time; time.sleep(600)")
    while not job.is_looking():
        job.tick()
    look = job.watchdog._look
    assert look is not None
    look.inquiry.cancel()
    job.answer()
    assert len(job.hangs) == 1
