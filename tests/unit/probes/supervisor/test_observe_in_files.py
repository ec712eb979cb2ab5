"""Where ranks stand, by span files in code and main threads made of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes import layout
from grpo_doctor_probes.live import Header
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor import observe
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.mainthread import MainThreads
from grpo_doctor_probes.supervisor.observe import Moment, Observer
from grpo_doctor_probes.supervisor.standing import FIRST_S, Lengths, Standing
from grpo_doctor_probes.supervisor.suspicion import GONE, SILENT, SPINNING
from tests.unit.probes.supervisor.headers_in_code import S, header, span
from tests.unit.probes.supervisor.test_mainthread import Thread


class Known(Lengths):
    """Remembers what it was taught."""

    def __init__(self) -> None:
        super().__init__()
        self.taught: list[tuple[str, float]] = []

    def learn(self, name: str, length_s: float) -> None:
        super().learn(name, length_s)
        self.taught.append((name, length_s))


class Job:
    """Rank 0 is process 7, rank 1 process 8, unless a test says otherwise."""

    def __init__(self, proc: Path) -> None:
        self.lengths = Known()
        self.observer = Observer(self.lengths)
        self.observer._threads = MainThreads(proc)
        self.threads = {pid: Thread(proc, pid) for pid in (7, 8)}
        self.headers: list[Header] = []
        self.ranks = {7: 0}
        self.deaths: list[Death] = []
        self.now = Moment((), {}, 0)

    def look(self, at_s: float, away_s: float = 0) -> dict[int, Standing]:
        """Where each process stands now."""
        groups = [RankGroup(rank, pid, (pid,)) for pid, rank in self.ranks.items()]
        self.now = self.observer.observe(
            self.headers, groups, self.deaths, round(at_s * S), round(away_s * S)
        )
        assert self.now.at_ns == round(at_s * S)
        return {standing.pid: standing for standing in self.now.standings}

    def runs(self, at_s: float, *, sleeps: bool = True) -> Standing:
        """It has used its core since the last look, and slept in between or not."""
        self._ran = getattr(self, "_ran", 0) + 1
        self.threads[7].is_now(ran_ms=5000.0 * self._ran, sleeps=self._ran if sleeps else 5)
        return self.look(at_s)[7]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def place_and_age(standing: Standing) -> tuple[str, float]:
    return standing.place, standing.since_ns / S


# --- ranks without spans


def test_a_rank_is_silent_after_three_seconds_without_work(job: Job) -> None:
    assert place_and_age(job.runs(10)) == (SPINNING, 10)
    assert place_and_age(job.look(13)[7]) == (SPINNING, 10)
    assert place_and_age(job.look(13.001)[7]) == (SILENT, 10)


def test_a_rank_that_runs_stands_where_it_last_slept(job: Job) -> None:
    assert place_and_age(job.runs(10)) == (SPINNING, 10)
    assert place_and_age(job.runs(12, sleeps=False)) == (SPINNING, 12)
    assert place_and_age(job.runs(14, sleeps=False)) == (SPINNING, 12)
    assert place_and_age(job.runs(16)) == (SPINNING, 16)


@pytest.mark.parametrize(("silent_s", "taught"), [(3.0, []), (3.5, [(SILENT, 3.5)])])
def test_a_silence_of_more_than_three_seconds_is_an_example(
    job: Job, silent_s: float, taught: list[tuple[str, float]]
) -> None:
    job.runs(10)
    job.runs(10 + silent_s)
    assert [example for example in job.lengths.taught if example[0] == SILENT] == taught


def test_a_time_without_sleep_is_an_example(job: Job) -> None:
    job.runs(10)
    for second in (11, 12, 13, 14):
        job.runs(second, sleeps=False)
    assert job.lengths.taught == []
    job.runs(15)
    assert job.lengths.taught == [(SPINNING, 4.0)]


def test_who_got_on_for_as_long_as_a_first_phase_may_take_is_known(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "FIRST_S", 6.0)
    assert [job.runs(10 + second).first for second in (0, 2, 4, 6, 8)] == [True] * 4 + [False]
    assert job.lengths.taught == []


def test_what_a_stuck_rank_does_is_no_example_until_it_leaves_its_place(job: Job) -> None:
    job.runs(10)
    job.look(100)
    job.observer.distrust()
    job.runs(110)
    assert job.lengths.taught == []
    job.runs(120)
    assert job.lengths.taught == [(SILENT, 10.0), (SPINNING, 10.0)]


# --- ranks with spans


def test_a_rank_with_spans_is_where_they_say(job: Job) -> None:
    job.headers = [header(span("train", 8), pid=7), header(span("reward", 9), pid=99)]
    assert {pid: place_and_age(s) for pid, s in job.look(10).items()} == {7: ("train", 8)}
    assert job.now.activities == {}


@pytest.mark.parametrize(("age_s", "looked_at"), [(3.0, set()), (3.001, {7, 8})])
def test_main_threads_are_looked_at_once_something_stands(
    job: Job, age_s: float, looked_at: set[int]
) -> None:
    job.ranks = {7: 0, 8: 1}
    job.headers = [header(span("train", 20 - age_s), pid=7), header(span("train", 20), pid=8)]
    job.look(20)
    assert job.now.activities.keys() == looked_at


def test_of_two_ranks_one_may_have_spans(job: Job) -> None:
    job.ranks = {7: 0, 8: 1}
    job.headers = [header(span("train", 20), pid=7)]
    moment = job.look(20)
    assert {pid: (s.rank, s.place) for pid, s in moment.items()} == {
        7: (0, "train"), 8: (1, SPINNING),
    }  # fmt: skip
    assert job.now.activities.keys() == {8}


# --- ranks that are gone


def dead(pid: int, rank: int | None, status: int | None) -> Death:
    return Death(Subject(pid, "any", rank), 5 * S, status)


@pytest.mark.parametrize(
    ("death", "is_gone"),
    [
        (dead(9, 2, 9), True),
        (dead(9, 2, 1 << 8), True),
        (dead(9, 2, None), True),
        (dead(9, 2, 0), False),
        (dead(9, None, 9), False),  # a helper
        (dead(9, 0, 9), False),  # it was started again: rank 0 is process 7
    ],
)
def test_a_rank_that_failed_and_was_not_started_again_is_gone(
    job: Job, death: Death, *, is_gone: bool
) -> None:
    job.deaths = [death]
    moment = job.look(20)
    assert (9 in moment) is is_gone
    if is_gone:
        assert moment[9] == Standing(2, 9, GONE, 5 * S, first=False)
        assert job.now.activities[9].state == GONE
        assert job.now.activities[9].since_ns == 5 * S


def test_a_rank_that_closed_its_recording_had_finished(job: Job) -> None:
    job.deaths = [dead(9, 2, 9)]
    job.headers = [header(pid=9, rank=2, closed_ns=4)]
    assert 9 not in job.look(20)
    job.headers = [header(pid=9, rank=2)]
    assert 9 in job.look(21)


def test_without_ranks_nobody_is_gone(job: Job) -> None:
    """The launcher ends the job."""
    job.ranks, job.deaths = {}, [dead(9, 2, 9)]
    assert job.look(20) == {}


# --- after an absence, and after a recovery


def test_ages_begin_anew_after_an_absence(job: Job) -> None:
    job.headers = [header(span("step", 1, layout.STEP), span("train", 2), pid=7)]
    assert job.look(12)[7].age_s(job.now.at_ns) == 10
    assert job.look(100, away_s=88)[7].age_s(job.now.at_ns) == 0
    assert job.look(107)[7].age_s(job.now.at_ns) == 7
    assert job.now.activities[7].since_ns == 100 * S
    job.headers = [header(span("step", 1, layout.STEP), span("reward", 110), pid=7)]
    job.look(111)
    assert job.lengths.taught == []
    job.headers = [header(span("step", 1, layout.STEP), span("train", 115), pid=7)]
    job.look(116)
    assert job.lengths.taught == [("reward", 6.0)]


def test_an_absence_is_no_time_in_which_a_rank_got_on(job: Job) -> None:
    job.runs(10)
    job.look(10 + 2 * FIRST_S, away_s=2 * FIRST_S)
    assert job.runs(11 + 2 * FIRST_S).first


def test_a_rank_that_has_moved_unseen_stands_since_then_alone(job: Job) -> None:
    job.ranks = {7: 0, 8: 1}
    for second in (10, 20):
        job.look(second)
    job.observer.have_moved([7], 15 * S)
    moment = job.look(21)
    assert {pid: s.since_ns / S for pid, s in moment.items()} == {7: 15, 8: 10}
    assert {pid: a.since_ns / S for pid, a in job.now.activities.items()} == {7: 15, 8: 10}
    job.observer.have_moved([8], 5 * S)  # before what is known
    assert {pid: s.since_ns / S for pid, s in job.look(22).items()} == {7: 15, 8: 10}


def test_who_has_gone_is_forgotten(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "FIRST_S", 6.0)
    job.ranks = {7: 0, 8: 1}
    job.headers = [header(span("train", 8), pid=8)]
    assert [job.runs(second).first for second in (10, 12, 14, 16, 18)] == [True] * 4 + [False]
    job.observer.have_moved([7, 8], 90 * S)
    job.ranks = {}
    job.look(200)
    job.ranks, job.headers = {7: 0, 8: 1}, [header(span("train", 50), pid=8)]
    moment = job.look(210)
    assert (moment[7].first, moment[7].since_ns) == (True, 210 * S)
    assert (moment[8].first, moment[8].since_ns) == (True, 50 * S)


# --- what silent ranks do when they are well


@pytest.mark.parametrize(
    ("ran_ms", "passed_s", "learned"),
    [(119.9, 10, False), (120, 10, True), (60, 5, True), (60, 5.1, False), (5, 0, True)],
)
def test_what_a_silent_rank_did_while_it_was_looked_at_is_how_it_works(
    job: Job, ran_ms: float, passed_s: float, *, learned: bool
) -> None:
    job.threads[7].is_now(ran_ms=700)
    job.look(10)
    earlier = job.now
    job.threads[7].is_now(ran_ms=700 + ran_ms)
    job.look(10 + passed_s)
    assert job.observer.learn_work([7], earlier, job.now) is learned


def test_all_that_are_silent_must_have_worked(job: Job) -> None:
    job.ranks = {7: 0, 8: 1}
    job.look(10)
    earlier = job.now
    job.threads[7].is_now(ran_ms=500)
    job.look(20)
    assert job.observer.learn_work([7], earlier, job.now)
    assert not job.observer.learn_work([7, 8], earlier, job.now)
    assert not job.observer.learn_work([7, 9], earlier, job.now)
    for moment in (earlier, job.now):
        without = replace(moment, activities={})
        pair = (without, job.now) if moment is earlier else (earlier, without)
        assert not job.observer.learn_work([7], *pair)
    job.observer.close()
