"""After a verdict: the job moves again, hangs again, ends, or is looked at a second time."""

from __future__ import annotations

import sys
from pathlib import Path

from grpo_doctor_probes import layout
from grpo_doctor_probes.supervisor.standing import FLOOR_S
from grpo_doctor_probes.supervisor.watchdog import AGAIN_NS
from tests.unit.probes.supervisor.headers_in_code import S, span
from tests.unit.probes.supervisor.watched import Watched, commanded


def test_a_job_that_moves_again_is_said_to_and_its_hang_is_not_learned(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    job.answer()
    job.stand(1000)
    job.begin_anew(1)
    job.outlive()
    assert job.messages == ["the job moves again"]
    assert job.lengths.limit_s("reward", first=False) == FLOOR_S
    job.until_asked(60)
    job.answer()
    assert [hang.answer.folder.name for hang in job.hangs] == ["0", "1"]


def test_a_second_hang_is_told_although_nobody_looked_at_the_recovery(tmp_path: Path) -> None:
    """The supervisor was held up for as long as the job moved: a recovery of any length counts."""
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.stand(100)
    job.now_s += 3
    job.begun[1] = job.now_s - 1.5  # it went through all its phases, to the same one
    job.outlive()
    assert job.messages == ["the job moves again"]
    assert job.until_asked(60) <= FLOOR_S + 3
    job.answer()
    assert [hang.answer.folder.name for hang in job.hangs] == ["0", "1"]


def test_ranks_that_torch_ends_do_not_move_again(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.end(0, 1 << 8)
    job.tick(1)
    job.end(1, 15)
    for _ in range(4):
        job.tick()
    assert job.messages == []
    assert len(job.hangs) == 1


def test_a_hang_is_over_when_its_culprit_has_moved_whoever_was_suspected(tmp_path: Path) -> None:
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
    job.outlive()
    assert job.messages == []
    job.begin_anew(0)
    job.inside.clear()
    job.outlive()
    assert job.messages == ["the job moves again"]


def test_a_rank_that_is_killed_while_the_job_hangs_is_news(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.watchdog._command = commanded("dead", "rank-dead", 3)
    job.end(1, 9)
    while not job.is_looking():
        job.begin_anew(0)
        job.tick()
    job.answer()
    assert [hang.answer.state for hang in job.hangs] == ["stuck", "dead"]
    assert job.messages == []


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
    for _ in range(400):
        job.tick()
    assert not job.is_looking()
    assert len(job.hangs) == 1


def test_a_second_look_at_a_job_that_moves_meanwhile_is_dropped(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.watchdog.look_again = True
    job.get_stuck()
    job.watchdog._command = (sys.executable, "-c", "import time; time.sleep(600)")
    while not job.is_looking():
        job.tick()
    look = job.watchdog._look
    assert look is not None
    job.begin_anew(1)
    job.outlive()
    assert job.messages == ["the job moves again"]
    look.inquiry.cancel()
    job.answer()
    assert job.messages == ["the job moves again"]
    assert not (tmp_path / "hangs/0-again").exists()
