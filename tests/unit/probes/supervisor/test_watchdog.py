"""From a suspicion to a verdict: what is asked, what is said, and when it is asked again.

The inspection is a stub here; tests/integration/test_watchdog.py has the real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from grpo_doctor_probes.record import layout
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.standing import FIRST_S, FLOOR_S, SILENT, STANDSTILL_S
from grpo_doctor_probes.supervisor.watchdog import MOST_RETRY_S, RETRY_S
from tests.unit.probes.supervisor.watched import S, Watched, commanded, span

AWAY_S = 3600.0
NEVER_ANSWERS = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def stuck(tmp_path: Path) -> Watched:
    """A job whose inspections find it stuck."""
    return Watched(tmp_path, "stuck", code=3)


def kept(folder: Path) -> list[str]:
    """The bundles that are left."""
    return sorted(path.name for path in (folder / "hangs").iterdir())


# --- when it is asked


def test_a_healthy_job_is_never_asked_about(stuck: Watched) -> None:
    for _ in range(500):
        stuck.tick()
        stuck.begin_anew(0)
        stuck.begin_anew(1)
        assert not stuck.is_looking()


@pytest.mark.parametrize("waiting", [(0,), (0, 1)])
def test_who_waits_is_suspected_only_where_all_late_ranks_wait(
    stuck: Watched, waiting: tuple[int, ...]
) -> None:
    for rank in waiting:
        stuck.inside[rank] = [span("all_gather", stuck.now_s, layout.COLLECTIVE)]
    stuck.until_asked(120, moves=False)
    stuck.answer()
    ranks = stuck.hangs[0].suspicion.ranks
    assert ranks == ((1,) if waiting == (0,) else (0, 1))


@pytest.mark.parametrize(
    ("death", "within_s"),
    [
        (Death(Subject(4711, "rank 2", 2), 0, 9), STANDSTILL_S),
        (Death(Subject(4711, "rank 2", 2), 0, 1 << 8), STANDSTILL_S),
        (Death(Subject(4711, "rank 2", 2), 0, 0), FLOOR_S),  # in order
        (Death(Subject(4711, "a helper", None), 0, 9), FLOOR_S),
        (Death(Subject(4711, "rank 0", 0), 0, 9), FLOOR_S),  # it was started again
    ],
)
def test_a_rank_that_failed_while_its_launcher_stays_is_asked_about(
    stuck: Watched, death: Death, within_s: float
) -> None:
    begun_s = stuck.now_s
    stuck.deaths.append(Death(death.subject, round(begun_s * S), death.status))
    stuck.until_asked(60)
    assert within_s - 1 < stuck.now_s - begun_s <= within_s + 1
    stuck.answer()
    assert stuck.hangs[0].suspicion.ranks == ((2,) if within_s == STANDSTILL_S else (1,))


@pytest.mark.parametrize(
    ("stopped", "within_s", "words"),
    [
        (False, FIRST_S, f"rank 0 has been {SILENT} for"),
        (True, STANDSTILL_S, "rank 0 has been stopped for"),
    ],
)
def test_a_rank_without_spans_is_asked_about(
    tmp_path: Path, within_s: float, words: str, *, stopped: bool
) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        job = Watched(tmp_path, "stuck", code=3, begun=False)
        if stopped:
            sleeper.send_signal(signal.SIGSTOP)
            os.waitpid(sleeper.pid, os.WUNTRACED)
        begun_s = job.now_s
        while not job.is_looking():
            job.now_s += 2
            groups = [RankGroup(0, sleeper.pid, (sleeper.pid,))]
            job.watchdog.tick((), groups, (), round(job.now_s * S))
        assert within_s - 2 <= job.now_s - begun_s <= within_s + 30
        assert job.look.suspicion.in_words().startswith(words)
        job.watchdog.rest()
    finally:
        sleeper.send_signal(signal.SIGCONT)
        sleeper.communicate(b"\n")


# --- what an answer leads to


@pytest.mark.parametrize(
    ("state", "cause", "lines"),
    [
        ("healthy", "", []),
        ("slow", "", ["rank 1 has been in reward for 36 s; slow, not stuck: Rank 1 sleeps."]),
        ("slow", "unknown",
         ["rank 1 has been in reward for 36 s; no reason found yet: Rank 1 sleeps."]),
    ],
)  # fmt: skip
def test_a_wrong_suspicion_is_said_at_most_once_and_doubles_the_limit(
    tmp_path: Path, state: str, cause: str, lines: list[str]
) -> None:
    job = Watched(tmp_path, state, cause=cause)
    for limit_s in (FLOOR_S, 2 * FLOOR_S, 4 * FLOOR_S):
        assert limit_s < job.until_asked(300) <= limit_s + 6
        job.answer()
    assert (job.messages, job.hangs, kept(tmp_path)) == (lines, [], [])


@pytest.mark.parametrize(
    ("code", "said"), [(4, "won't be checked again: Rank 1 sleeps."), (5, None)]
)
def test_without_the_right_to_inspect_that_is_said_once_and_of_an_end_nothing(
    tmp_path: Path, code: int, said: str | None
) -> None:
    job = Watched(tmp_path, "", code=code)
    job.until_asked(60)
    job.answer()
    job.stand(1000 if said else RETRY_S - 2)
    assert not job.is_looking()
    assert (len(job.messages), job.hangs) == (said is not None, [])
    assert said is None or said in job.messages[0]


def test_inspections_that_crash_are_said_three_times_and_tried_later_and_later(
    tmp_path: Path,
) -> None:
    job = Watched(tmp_path, "", code=1)
    asked_s = []
    for _ in range(5):
        job.until_asked(2 * MOST_RETRY_S)
        asked_s.append(job.now_s)
        job.answer()
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == pytest.approx([RETRY_S * 2**n for n in range(4)], abs=1)
    assert len(job.messages) == 3
    assert job.messages[-1].endswith("retrying silently")
    job.watchdog._command = commanded("stuck", "", 3)
    job.until_asked(2 * MOST_RETRY_S)
    job.answer()
    assert len(job.hangs) == 1


def test_an_inspection_that_cannot_be_started_is_a_failure(stuck: Watched) -> None:
    stuck.watchdog._command = (str(stuck.folder / "none"),)
    stuck.stand(FLOOR_S + 5)
    assert stuck.messages[0].startswith("can't inspect the job: ")


def test_a_verdict_on_a_rank_that_has_moved_on_is_dropped(stuck: Watched) -> None:
    stuck.until_asked(60)
    stuck.begin_anew(1)
    stuck.answer()
    assert (stuck.hangs, kept(stuck.folder)) == ([], [])


# --- after a verdict


@pytest.mark.parametrize("state", ["healthy", "slow"])
def test_a_job_that_moves_again_is_reported_and_its_hang_is_not_learned(
    stuck: Watched, state: str
) -> None:
    stuck.get_stuck()
    stuck.stand(50)
    stuck.begin_anew(1)
    stuck.look_finds(state)
    assert stuck.messages == ["the job moves again"]
    stuck.watchdog._command = commanded("stuck", "", 3)
    assert stuck.until_asked(60) <= FLOOR_S + 1
    stuck.answer()
    assert [hang.answer.folder.name for hang in stuck.hangs] == ["0", "1"]


@pytest.mark.parametrize(
    ("state", "cause", "code"), [("stuck", "", 3), ("slow", "unknown", 0), ("", "", 5)]
)
def test_what_looks_like_progress_is_inspected_later_and_later(
    stuck: Watched, state: str, cause: str, code: int
) -> None:
    """A poll, or an error on the way out."""
    stuck.get_stuck()
    asked_s = []
    for _ in range(4):
        while not stuck.is_looking():
            stuck.begin_anew(1)
            stuck.tick()
        asked_s.append(stuck.now_s)
        stuck.watchdog._command = commanded(state, cause, code)
        stuck.answer()
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == pytest.approx([RETRY_S, 2 * RETRY_S, 4 * RETRY_S], abs=1)
    assert (stuck.messages, len(stuck.hangs), kept(stuck.folder)) == ([], 1, ["0"])


def test_a_job_that_moves_without_a_sign_is_found_later_and_later(stuck: Watched) -> None:
    stuck.get_stuck()
    asked_s = [stuck.now_s]
    for _ in range(5):
        stuck.until_asked(300, moves=False)
        asked_s.append(stuck.now_s)
        stuck.answer()
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == pytest.approx([60, 60, 60, 120, 240], abs=2)


def test_a_stuck_job_whose_ranks_have_ended_is_stuck_no_more(stuck: Watched) -> None:
    stuck.get_stuck()
    stuck.end(1, 9)
    stuck.watchdog._command = commanded("dead", "rank-dead", 3)
    stuck.until_asked(60, moves=False)
    stuck.answer()
    assert [hang.answer.state for hang in stuck.hangs] == ["stuck", "dead"]


# --- the end of the job, and of an absence


@pytest.mark.parametrize(
    ("state", "wait_s", "is_told"),
    [("stuck", 60, True), ("dead", 60, True), ("healthy", 60, False), ("stuck", 0, False)],
)
def test_an_inspection_is_given_its_time_at_the_end(
    tmp_path: Path, state: str, wait_s: float, *, is_told: bool
) -> None:
    cause = "rank-dead" if state == "dead" else ""
    job = Watched(tmp_path, state, cause=cause, code=3)
    job.until_asked(60)
    job.watchdog.close(wait_s=wait_s)
    assert [hang.answer.state for hang in job.hangs] == [state] * is_told
    assert kept(tmp_path) == ["0"] * is_told
    assert not job.is_looking()


def test_an_inspection_is_ended_when_the_job_is_told_to_end(stuck: Watched) -> None:
    stuck.watchdog._command = NEVER_ANSWERS
    stuck.until_asked(60)
    look = stuck.look
    stuck.watchdog.rest()
    stuck.watchdog.rest()
    assert look.inquiry._process.returncode is not None
    assert (stuck.is_looking(), kept(stuck.folder)) == (False, [])
    stuck.watchdog._command = commanded("stuck", "", 3)
    stuck.until_asked(60)  # it did not obey
    stuck.answer()
    assert len(stuck.hangs) == 1


def test_an_age_begins_again_when_we_are_back(stuck: Watched) -> None:
    stuck.deaths.append(Death(Subject(4711, "rank 2", 2), round(stuck.now_s * S), 9))
    stuck.until_asked(60)
    stuck.tick(AWAY_S)  # an inspection of a job that was stopped with us does not count
    back_s = stuck.now_s
    stuck.until_asked(60)
    assert STANDSTILL_S < stuck.now_s - back_s <= STANDSTILL_S + 1
    stuck.answer()
    assert STANDSTILL_S < stuck.hangs[0].suspicion.age_s <= STANDSTILL_S + 1


def test_a_stuck_job_has_not_moved_because_we_were_away(stuck: Watched) -> None:
    stuck.get_stuck()
    stuck.tick(AWAY_S)
    stuck.stand(60)
    assert (stuck.messages, len(stuck.hangs)) == ([], 1)
