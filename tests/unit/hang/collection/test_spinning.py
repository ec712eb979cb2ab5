"""When ranks are looked at closer, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from grpo_doctor.hang.collection import examine
from grpo_doctor.hang.collection.examine import Visit, look_closer
from grpo_doctor_probes.evidence import Locals, Look, Position, Role
from tests.evidence import FIRST_NS, EvidenceBuilder, frames
from tests.unit.hang.collection.played import Clock
from tests.unit.hang.decision.test_library_threads import with_threads

ITEM = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")


class Played:
    """Stands for what is looked at, and counts."""

    def __init__(self, library: str, digests: Sequence[str]) -> None:
        self.library, self.digests = library, list(digests)
        self.stopped: list[int] = []
        self.digested: list[list[int]] = []
        self.clock = Clock()
        self.digest_s = 0.0

    def positions(self, before: Look, after: Look, *, at_most_s: float) -> tuple[Position, ...]:
        self.stopped += [process.pid for process in after.processes]
        return tuple(
            Position(process.pid, process.pid, FIRST_NS, self.library, self.library)
            for process in after.processes
        )

    def locals_digests(self, pids: Sequence[int], *, at_most_s: float) -> tuple[Locals, ...]:
        self.digested.append(list(pids))
        self.clock.passed_s += self.digest_s
        digest = self.digests.pop(0)
        return tuple(Locals(pid, FIRST_NS, digest) for pid in pids)


def visited(build: EvidenceBuilder) -> Visit:
    evidence = build.build()
    return Visit(
        evidence.job,
        looks=list(evidence.looks),
        stacks=list(evidence.stacks),
        limits=list(evidence.limits),
    )


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(library: str = "libcuda.so.1", digests: Sequence[str] = "aaa") -> Played:
        played = Played(library, digests)
        monkeypatch.setattr("grpo_doctor_probes.look.positions", played.positions)
        monkeypatch.setattr("grpo_doctor_probes.look.locals_digests", played.locals_digests)
        monkeypatch.setattr(examine, "BETWEEN_S", 0.0)
        return played

    return put


def closer(visit: Visit, *, stop: bool = True) -> None:
    look_closer(visit, lambda _text: None, stop=stop, wait_s=0.0)


def one_at_a_line() -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=2)
    build.rank(1).works(ITEM, moves=False)
    return build


def test_ranks_asleep_are_left_alone(play: Any) -> None:
    played = play()
    closer(visited(EvidenceBuilder(ranks=2)))
    assert (played.stopped, played.digested) == ([], [])


def test_a_rank_that_spins_is_given_time_to_come_back(play: Any) -> None:
    played = play()
    visit = visited(one_at_a_line())
    closer(visit)
    assert played.digested == [[101], [101], [101]]
    assert [position.pid for position in visit.positions] == [100, 101]
    assert "spinning" in visit.parts


def test_one_that_came_back_is_not_asked_again(play: Any) -> None:
    played = play(digests="abb")
    closer(visited(one_at_a_line()))
    assert played.digested == [[101], [101]]


def test_one_that_computes_is_not_asked(play: Any) -> None:
    played = play(library="libpython3.11.so.1.0")
    closer(visited(one_at_a_line()))
    assert played.digested == []


def test_without_leave_no_thread_is_stopped(play: Any) -> None:
    played = play()
    closer(visited(one_at_a_line()), stop=False)
    assert played.stopped == []


def test_processes_that_are_neither_ranks_nor_of_engines_are_left_alone(play: Any) -> None:
    played = play()
    build = one_at_a_line()
    roles: tuple[Role, ...] = ("helper", "reward", "server", "engine", "engine-worker")
    for number, role in enumerate(roles):
        build.child(0, role, pid=200 + number).works(ITEM, moves=False)
    visit = visited(build)
    closer(visit)
    assert [position.pid for position in visit.positions] == [100, 101, 203, 204]
    assert played.digested[0] == [101, 203, 204]


def test_of_many_that_spin_the_first_sixteen_are_asked(play: Any) -> None:
    played = play()
    build = EvidenceBuilder(ranks=18)
    for rank in range(1, 18):
        build.rank(rank).works(ITEM, moves=False)
    closer(visited(build))
    assert played.digested == [list(range(101, 117))] * 3


@pytest.mark.parametrize(
    ("digest_s", "slept"),
    [(0.0, [0.5, 1.0]), (0.125, [0.375, 0.875]), (0.5, [0.0, 0.5]), (2.0, [0.0, 0.0])],
)
def test_the_moments_are_half_a_second_and_then_a_wait_after_the_first(
    digest_s: float, slept: list[float], play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play()
    monkeypatch.setattr(examine, "BETWEEN_S", 0.5)
    monkeypatch.setattr(examine, "time", played.clock)
    played.digest_s = digest_s
    look_closer(visited(one_at_a_line()), lambda _text: None, stop=True, wait_s=1.5)
    assert played.clock.slept == slept


def test_a_rank_asleep_over_a_library_s_threads_is_looked_at_closer(play: Any) -> None:
    played = play()
    evidence = with_threads(EvidenceBuilder(ranks=2).build(), 101, 0.9)
    visit = Visit(
        evidence.job,
        looks=list(evidence.looks),
        stacks=list(evidence.stacks),
        limits=list(evidence.limits),
    )
    closer(visit)
    assert played.stopped == [100, 101]
    assert played.digested == []
