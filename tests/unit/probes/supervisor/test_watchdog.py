"""From a suspicion to a verdict: what is asked, what is said, and when it is asked again.

The closer look is a stub here; tests/integration/test_watchdog.py has the real one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.record import layout
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.standing import FLOOR_S
from grpo_doctor_probes.supervisor.suspicion import MOST_RETRY_S, RETRY_S
from tests.unit.probes.supervisor.headers_in_code import S, span
from tests.unit.probes.supervisor.watched import Watched, commanded


def test_a_stuck_rank_is_asked_about_once_and_its_bundle_is_kept(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", cause="reward-blocked", code=3)
    job.get_going()
    assert FLOOR_S < job.until_asked(60) <= FLOOR_S + 1
    job.answer()
    (hang,) = job.hangs
    assert hang.suspicion.ranks == (1,)
    assert hang.answer.summary == "Rank 1 sleeps."
    assert (tmp_path / "hangs/0/evidence").exists()
    for _ in range(4):
        job.tick(100)
        if job.is_looking():
            job.answer()
    assert (len(job.hangs), job.messages) == (1, [])
    assert [path.name for path in (tmp_path / "hangs").iterdir()] == ["0"]


@pytest.mark.parametrize(("state", "lines"), [("healthy", 0), ("slow", 1)])
def test_a_wrong_suspicion_is_said_at_most_once_and_doubles_the_limit(
    tmp_path: Path, state: str, lines: int
) -> None:
    job = Watched(tmp_path, state)
    job.get_going()
    job.until_asked(60)
    job.answer()
    assert not list((tmp_path / "hangs").iterdir())
    assert 2 * FLOOR_S < job.until_asked(120) <= 2 * FLOOR_S + 3
    job.answer()
    assert 4 * FLOOR_S < job.until_asked(300) <= 4 * FLOOR_S + 6
    assert len(job.messages) == lines
    assert not job.hangs


def test_who_waits_for_a_slow_rank_is_not_asked_about_in_its_place(tmp_path: Path) -> None:
    job = Watched(tmp_path, "slow")
    job.get_going()
    job.inside[0] = [span("all_gather", job.now_s, layout.COLLECTIVE)]
    while not job.is_looking():
        job.tick()
    job.answer()
    for _ in range(40):
        job.tick()
        assert not job.is_looking()
    assert len(job.messages) == 1


def test_a_look_that_cannot_tell_is_repeated_later_and_later(tmp_path: Path) -> None:
    job = Watched(tmp_path, "slow", cause="unknown")
    job.get_going()
    ages = []
    for _ in range(4):
        ages.append(job.until_asked(2 * MOST_RETRY_S))
        job.answer()
    waits = [later - sooner for sooner, later in pairwise(ages)]
    assert waits == pytest.approx([RETRY_S, 2 * RETRY_S, 4 * RETRY_S], abs=1.5)
    assert len(job.messages) == 1
    assert "no reason found yet" in job.messages[0]


def test_when_it_was_first_looked_at_is_kept_over_looks_that_could_not_tell(
    tmp_path: Path,
) -> None:
    job = Watched(tmp_path, "slow", cause="unknown")
    job.get_going()
    job.until_asked(60)
    asked_s = job.now_s
    job.answer()
    job.watchdog._command = commanded("stuck", "", 3)
    job.until_asked(60)
    job.answer()
    assert job.hangs[0].asked_ns == round(asked_s * S)


def test_without_the_right_to_look_it_is_said_once_and_given_up(tmp_path: Path) -> None:
    job = Watched(tmp_path, "", code=4)
    job.get_going()
    job.until_asked(60)
    job.answer()
    job.stand(1000)
    assert not job.is_looking()
    assert len(job.messages) == 1
    assert job.messages[0].endswith("Rank 1 sleeps.")


def test_looks_that_crash_are_said_three_times_and_tried_on(tmp_path: Path) -> None:
    """What went wrong three times in a bad hour may go well for the rest of the week."""
    job = Watched(tmp_path, "", code=1)
    job.get_going()
    for _ in range(5):
        job.until_asked(2 * MOST_RETRY_S)
        job.answer()
    assert len(job.messages) == 3
    assert job.messages[-1].endswith("retrying silently")
    job.watchdog._command = commanded("stuck", "", 3)
    job.until_asked(2 * MOST_RETRY_S)
    job.answer()
    assert len(job.hangs) == 1


def test_a_job_that_ends_meanwhile_is_no_hang(tmp_path: Path) -> None:
    job = Watched(tmp_path, "", code=5)
    job.get_going()
    job.until_asked(60)
    job.answer()
    assert (job.messages, job.hangs) == ([], [])


def test_a_verdict_on_a_rank_that_has_moved_on_is_dropped(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    job.begin_anew(1)
    job.tick()
    if job.is_looking():
        job.answer()
    assert not job.hangs


def test_a_healthy_job_is_never_asked_about(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    for _ in range(2000):
        job.tick()
        job.begin_anew(0)
        job.begin_anew(1)
        assert not job.is_looking()
    assert not (tmp_path / "hangs").exists()


def test_another_suspicion_is_not_put_off_for_one_that_could_not_be_settled(
    tmp_path: Path,
) -> None:
    job = Watched(tmp_path, "slow", cause="unknown")
    job.get_going()
    for _ in range(5):
        job.until_asked(2 * MOST_RETRY_S)
        job.answer()
    job.begin_anew(1)
    assert job.until_asked(60) <= FLOOR_S + 1


def test_a_job_that_was_told_to_end_is_left_alone(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    look = job.watchdog._look
    assert look is not None
    job.watchdog.rest()
    job.watchdog.rest()
    assert look.inquiry._process.returncode is not None
    assert not job.is_looking()
    assert not list((tmp_path / "hangs").iterdir())
    job.until_asked(60)  # it did not obey
    job.answer()
    assert len(job.hangs) == 1


def test_a_killed_rank_whose_launcher_stays_is_asked_about(tmp_path: Path) -> None:
    job = Watched(tmp_path, "dead", cause="rank-dead", code=3)
    job.get_going()
    job.deaths.append(Death(Subject(4711, "rank 2", 2), round(job.now_s * S), 9))
    job.until_asked(15)
    job.answer()
    assert job.hangs[0].suspicion.ranks == (2,)


def test_closing_ends_a_look_that_is_under_way(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.watchdog._command = (sys.executable, "-c", "import time; time.sleep(600)")
    job.get_going()
    job.until_asked(60)
    look = job.watchdog._look
    assert look is not None
    job.watchdog.close(wait_s=0)
    assert look.inquiry._process.returncode is not None
    assert not list((tmp_path / "hangs").iterdir())


def test_a_document_of_another_form_is_no_verdict(tmp_path: Path) -> None:
    wrong: tuple[Mapping[str, Any] | list[Any], ...] = ({}, [], {"verdict": []})
    for number, document in enumerate(wrong):
        folder = tmp_path / str(number)
        job = Watched(folder, "stuck")
        printed = f"print({json.dumps(json.dumps(document))})"
        job.watchdog._command = (sys.executable, "-c", printed)
        job.get_going()
        job.until_asked(60)
        job.answer()
        assert not job.hangs
        assert "failed" in job.messages[0]
