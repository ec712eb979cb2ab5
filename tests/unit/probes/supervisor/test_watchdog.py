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

from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header, OpenSpan
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.lengths import FLOOR_S, Lengths
from grpo_doctor_probes.supervisor.watchdog import MOST_RETRY_S, RETRY_S, Hang, Watchdog
from tests.unit.probes.supervisor.headers_in_code import S, header, span

# Two pids that no process has, so that /proc says nothing of them: pid_max is at most 2**22.
PIDS = (2**22 + 1, 2**22 + 2)
GROUPS = [RankGroup(rank, pid, (pid,)) for rank, pid in enumerate(PIDS)]
STUB = """
import json, sys
state, cause, summary, code = json.loads(sys.argv[1])
open(sys.argv[-2] + "/evidence", "w").close()
print(summary, file=sys.stderr)
if state:
    print(json.dumps({"verdict": {"state": state, "class": cause, "summary": summary}}))
sys.exit(code)
"""


class Watched:
    """A job of two ranks, time as the test says, and a look that answers what it is told."""

    def __init__(self, folder: Path, state: str, *, cause: str = "", code: int = 0) -> None:
        answer = json.dumps([state, cause, "Rank 1 sleeps.", code])
        self.folder, self.lengths = folder, Lengths(timeout_s=1e6)
        self.said: list[str] = []
        self.hangs: list[Hang] = []
        self.now_s = 1000.0
        self.begun = {0: 999.0, 1: 999.0}
        self.inside: dict[int, list[OpenSpan]] = {}
        self.deaths: list[Death] = []
        self.watchdog = Watchdog(
            folder,
            self.lengths,
            say=self.said.append,
            on_hang=self.hangs.append,
            command=(sys.executable, "-c", STUB, answer),
        )

    @property
    def headers(self) -> list[Header]:
        return [
            header(
                span("step", 1, layout.STEP),
                span("reward", self.begun[group.rank]),
                *self.inside.get(group.rank, ()),
                rank=group.rank,
                pid=group.main,
            )
            for group in GROUPS
        ]

    def tick(self, seconds: float = 0.5) -> None:
        self.now_s += seconds
        self.watchdog.tick(self.headers, GROUPS, self.deaths, round(self.now_s * S))

    def begin_anew(self, rank: int) -> None:
        self.begun[rank] = self.now_s

    def get_going(self) -> None:
        """Both ranks finish a `reward` and begin the next."""
        for _ in range(3):
            self.tick()
            self.begin_anew(0)
            self.begin_anew(1)
        self.tick()

    def asked(self) -> bool:
        """Whether a look is under way."""
        return self.watchdog._inquiry is not None

    def answer(self) -> None:
        """Waits for the look and lets the watchdog have its answer."""
        inquiry = self.watchdog._inquiry
        assert inquiry is not None
        assert inquiry.wait(60) is not None
        self.tick(0)

    def until_asked(self, within_s: float) -> float:
        """Ticks on, rank 0 moving, until a look begins; the age of rank 1's phase then."""
        end_s = self.now_s + within_s
        while not self.asked():
            assert self.now_s < end_s, "it was never looked at"
            self.begin_anew(0)
            self.tick()
        return self.now_s - self.begun[1]


def test_a_stuck_rank_is_asked_about_once_and_its_bundle_is_kept(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", cause="reward-blocked", code=3)
    job.get_going()
    assert FLOOR_S < job.until_asked(60) <= FLOOR_S + 1
    job.answer()
    (hang,) = job.hangs
    assert hang.suspicion.ranks == (1,)
    assert hang.answer.summary == "Rank 1 sleeps."
    assert (tmp_path / "hangs/0/evidence").exists()
    for _ in range(400):
        job.tick()
    assert not job.asked()
    assert len(job.hangs) == 1


def test_a_job_that_moves_again_is_said_to_and_its_hang_is_not_learned(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    job.answer()
    job.tick(1000)
    job.begin_anew(1)
    job.tick()
    assert job.said == ["the job moves again"]
    assert job.lengths.limit_s("reward", first=False) == FLOOR_S
    job.until_asked(60)
    job.answer()
    assert [hang.answer.folder.name for hang in job.hangs] == ["0", "1"]


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
    assert len(job.said) == lines
    assert not job.hangs


def test_who_waits_for_a_slow_rank_is_not_asked_about_in_its_place(tmp_path: Path) -> None:
    job = Watched(tmp_path, "slow")
    job.get_going()
    job.inside[0] = [span("all_gather", job.now_s, layout.COLLECTIVE)]
    while not job.asked():
        job.tick()
    job.answer()
    for _ in range(40):
        job.tick()
        assert not job.asked()
    assert len(job.said) == 1


def test_a_look_that_cannot_tell_is_repeated_later_and_later(tmp_path: Path) -> None:
    job = Watched(tmp_path, "slow", cause="unknown")
    job.get_going()
    ages = []
    for _ in range(4):
        ages.append(job.until_asked(2 * MOST_RETRY_S))
        job.answer()
    waits = [later - sooner for sooner, later in pairwise(ages)]
    assert waits == pytest.approx([RETRY_S, 2 * RETRY_S, 4 * RETRY_S], abs=1.5)
    assert len(job.said) == 1
    assert "no reason found yet" in job.said[0]


def test_without_the_right_to_look_it_is_said_once_and_given_up(tmp_path: Path) -> None:
    job = Watched(tmp_path, "", code=4)
    job.get_going()
    job.until_asked(60)
    job.answer()
    job.tick(10_000)
    assert not job.asked()
    assert len(job.said) == 1
    assert job.said[0].endswith("Rank 1 sleeps.")


def test_a_look_that_crashes_is_tried_three_times(tmp_path: Path) -> None:
    job = Watched(tmp_path, "", code=1)
    job.get_going()
    for _ in range(3):
        job.until_asked(2 * MOST_RETRY_S)
        job.answer()
    job.tick(10_000)
    assert not job.asked()
    assert len(job.said) == 3
    assert job.said[-1].endswith("it will not be tried again")


def test_a_job_that_ends_meanwhile_is_no_hang(tmp_path: Path) -> None:
    job = Watched(tmp_path, "", code=5)
    job.get_going()
    job.until_asked(60)
    job.answer()
    assert (job.said, job.hangs) == ([], [])


def test_a_verdict_on_a_rank_that_has_moved_on_is_dropped(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    job.begin_anew(1)
    job.tick()
    if job.asked():
        job.answer()
    assert not job.hangs


def test_a_healthy_job_is_never_asked_about(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    for _ in range(2000):
        job.tick()
        job.begin_anew(0)
        job.begin_anew(1)
        assert not job.asked()
    assert not (tmp_path / "hangs").exists()


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
    inquiry = job.watchdog._inquiry
    assert inquiry is not None
    job.watchdog.close(wait_s=0)
    assert inquiry._process.returncode is not None
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
        assert "failed" in job.said[0]
