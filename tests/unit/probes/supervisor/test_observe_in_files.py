"""Where ranks stand, by span files in code and main threads made of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.observe import Moment, Observer
from grpo_doctor_probes.supervisor.standing import GONE, SILENT, SPINNING, Lengths, Standing
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
        self.observer = Observer(self.lengths, proc)
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


# --- after an absence


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
