"""We were stopped ourselves: what passed meanwhile is no example, and no reason for suspicion."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.observe import Observer
from grpo_doctor_probes.supervisor.standing import FLOOR_S, Lengths
from grpo_doctor_probes.supervisor.suspicion import STANDSTILL_S, Presence
from tests.unit.probes.supervisor.headers_in_code import S
from tests.unit.probes.supervisor.test_observe import SLEEPS, running
from tests.unit.probes.supervisor.watched import Watched

AWAY_S = 3600.0


@pytest.mark.parametrize(
    ("looks_s", "missed_s"),
    [
        ((1000, 1000.5, 1001), 0),
        ((1000, 1000.5, 1004), 0),
        ((1000, 1000.5, 1041), 40.5),
        ((1000, 1007, 1014), 0),
    ],
    ids=["regular", "held up", "away", "always slow"],
)
def test_an_absence_is_long_and_unusual(looks_s: tuple[float, ...], missed_s: float) -> None:
    presence = Presence()
    missed = [presence.missed_ns(round(look * S)) for look in looks_s]
    assert missed[-1] == missed_s * S


def test_a_pause_is_no_absence() -> None:
    presence = Presence()
    presence.missed_ns(1000 * S)
    presence.pause()
    assert presence.missed_ns(1040 * S) == 0


@pytest.mark.parametrize("seen_before", [True, False], ids=["seen open before", "just begun"])
@pytest.mark.parametrize("ends_at_once", [True, False], ids=["ended", "still open"])
def test_a_phase_during_which_we_were_away_is_no_example(
    tmp_path: Path, *, seen_before: bool, ends_at_once: bool
) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.begin_anew(1)
    if seen_before:
        job.tick()
    if ends_at_once:
        job.now_s += AWAY_S
        job.begin_anew(1)
        job.tick()
    else:
        job.tick(AWAY_S)
        job.begin_anew(1)
    job.tick()
    assert not job.is_looking()
    assert job.lengths.limit_s("reward", first=False) == FLOOR_S


def test_an_age_begins_anew_when_we_are_back(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.tick(AWAY_S)
    back_s = job.now_s
    job.until_asked(60)
    assert FLOOR_S < job.now_s - back_s <= FLOOR_S + 1
    job.answer()
    assert FLOOR_S < job.hangs[0].suspicion.age_s <= FLOOR_S + 1


def test_a_calm_answer_after_an_absence_tolerates_no_absence(tmp_path: Path) -> None:
    job = Watched(tmp_path, "healthy")
    job.get_going()
    job.tick(AWAY_S)
    job.until_asked(60)
    job.answer()
    assert job.lengths.limit_s("reward", first=False) <= 2 * FLOOR_S + 2


def test_a_look_at_a_job_that_was_stopped_with_us_does_not_count(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_going()
    job.until_asked(60)
    look = job.watchdog._look
    assert look is not None
    assert look.inquiry.wait(60) is not None
    job.tick(AWAY_S)
    assert not job.hangs
    job.until_asked(60)
    job.answer()
    assert len(job.hangs) == 1


def test_a_stuck_job_has_not_moved_because_we_were_away(tmp_path: Path) -> None:
    job = Watched(tmp_path, "stuck", code=3)
    job.get_stuck()
    job.tick(AWAY_S)
    job.stand(60)
    assert not job.messages
    assert len(job.hangs) == 1


def test_a_rank_that_was_killed_before_is_given_its_time_again(tmp_path: Path) -> None:
    job = Watched(tmp_path, "dead", cause="rank-dead", code=3)
    job.get_going()
    job.deaths.append(Death(Subject(4711, "rank 2", 2), round(job.now_s * S), 9))
    job.tick()
    job.tick(AWAY_S)
    back_s = job.now_s
    job.until_asked(60)
    assert STANDSTILL_S < job.now_s - back_s <= STANDSTILL_S + 1


def test_a_rank_that_slept_on_is_silent_since_we_are_back() -> None:
    with running(SLEEPS) as pid:
        observer, groups = Observer(Lengths()), [RankGroup(0, pid, (pid,))]
        observer.observe((), groups, (), S)
        observer.observe((), groups, (), 3601 * S, 3600 * S)
        moment = observer.observe((), groups, (), 3621 * S)
        observer.close()
    assert moment.standings[0].age_s(moment.at_ns) == 20
