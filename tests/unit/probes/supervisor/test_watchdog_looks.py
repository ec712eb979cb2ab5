"""Looks that are under way when the watch ends or pauses, and looks at a rank that never sleeps."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from grpo_doctor_probes.supervisor.observe import Activity, Moment, Observer
from grpo_doctor_probes.supervisor.standing import FIRST_S, SPINNING, Standing
from grpo_doctor_probes.supervisor.suspicion import RETRY_S
from grpo_doctor_probes.supervisor.watchdog import AGAIN_NS
from tests.unit.probes.supervisor.headers_in_code import S
from tests.unit.probes.supervisor.watched import PIDS, Watched


def saying(state: str, cause: str = "") -> tuple[str, ...]:
    """A look that answers so, at once."""
    verdict = {"state": state, "class": cause, "summary": "Rank 1 sleeps.", "culprits": []}
    return ("sh", "-c", 'printf %s "$0"', json.dumps({"verdict": verdict}))


NEVER_ANSWERS = ("sh", "-c", "exec sleep 600")


@pytest.mark.parametrize(
    ("state", "wait_s", "is_told"),
    [("stuck", 60, True), ("dead", 60, True), ("healthy", 60, False), ("stuck", 0, False)],
)
def test_a_look_is_given_its_time_at_the_end(
    tmp_path: Path, state: str, wait_s: float, *, is_told: bool
) -> None:
    job = Watched(tmp_path, state)
    job.watchdog._command = saying(state, "rank-dead" if state == "dead" else "")
    job.get_going()
    job.until_asked(60)
    job.watchdog.close(wait_s=wait_s)
    assert [hang.answer.state for hang in job.hangs] == [state] * is_told
    assert [hang.suspicion.ranks for hang in job.hangs] == [(1,)] * is_told
    assert (tmp_path / "hangs/0").exists() is is_told
    assert not job.is_looking()


def test_a_look_that_does_not_answer_in_its_time_is_ended(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck")
    job.watchdog._command = NEVER_ANSWERS
    job.get_going()
    job.until_asked(60)
    job.watchdog.close(wait_s=0.01)
    assert job.hangs == []
    assert not (tmp_path / "hangs/0").exists()


def test_without_a_look_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck")
    job.get_going()
    job.watchdog.close(wait_s=60)
    assert job.hangs == []


@pytest.fixture
def stuck(tmp_path: Path) -> Watched:
    """A job that was found stuck and is being looked at a second time."""
    job = Watched(tmp_path, "stuck")
    job.watchdog.look_again = True
    job.watchdog._command = saying("stuck")
    job.get_stuck()
    assert not job.is_looking()
    while not job.is_looking():
        job.tick(5)
    assert job.now_s * S - job.hangs[0].at_ns == AGAIN_NS + 5 * S
    return job


def test_a_second_look_is_not_waited_for_at_the_end(stuck: Watched) -> None:
    stuck.watchdog.close(wait_s=60)
    assert (len(stuck.hangs), stuck.messages) == (1, [])
    assert not (stuck.folder / "hangs/0-again").exists()


def test_a_second_look_that_was_broken_off_is_taken_later(stuck: Watched) -> None:
    stuck.watchdog.rest()
    assert not stuck.is_looking()
    stuck.tick()
    assert stuck.is_looking()
    stuck.answer()
    stuck.stand(10)
    assert not stuck.is_looking()
    assert stuck.messages == ["a minute later: Rank 1 sleeps."]


class Seen:
    """An observer that sees a rank which never sleeps but when it is looked at."""

    def __init__(self) -> None:
        self.since_s = 1000.0

    def observe(
        self, _headers: object, _groups: object, _deaths: object, now_ns: int, _away_ns: int
    ) -> Moment:
        since_ns = round(self.since_s * S)
        standings = (
            Standing(0, PIDS[0], "rollout", now_ns, first=False),
            Standing(1, PIDS[1], SPINNING, since_ns, first=True),
        )
        return Moment(standings, {PIDS[1]: Activity("R", since_ns, now_ns)}, now_ns)

    def distrust(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_rank_that_never_sleeps_is_one_suspicion_though_looks_wake_it(tmp_path: Path) -> None:
    job, observer = Watched(tmp_path, "slow"), Seen()
    job.watchdog._observer = cast(Observer, observer)
    job.watchdog._command = saying("slow", "unknown")
    asked_s: list[float] = []
    for _ in range(4):
        while not job.is_looking():
            job.tick(2.5)
        asked_s.append(job.now_s)
        job.answer()
        observer.since_s = job.now_s - FIRST_S  # it has slept since
    assert asked_s[0] == 1000 + FIRST_S + 2.5
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert len(job.messages) == 1
