"""When ranks are looked at closer, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from grpo_doctor.hang.collection import spinning
from grpo_doctor.hang.collection.spinning import look_closer
from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor_probes.evidence import Locals, Look, Position
from tests.evidence import FIRST_NS, EvidenceBuilder, frames

ITEM = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")


class Played:
    """Stands for what is looked at, and counts."""

    def __init__(self, library: str, digests: Sequence[str]) -> None:
        self.library, self.digests = library, list(digests)
        self.stopped: list[int] = []
        self.asked: list[list[int]] = []

    def positions(self, before: Look, after: Look, *, at_most_s: float) -> tuple[Position, ...]:
        self.stopped += [one.pid for one in after.processes]
        return tuple(
            Position(one.pid, one.pid, FIRST_NS, self.library, self.library)
            for one in after.processes
        )

    def locals_digests(self, pids: Sequence[int], *, at_most_s: float) -> tuple[Locals, ...]:
        self.asked.append(list(pids))
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
        monkeypatch.setattr(spinning, "BETWEEN_S", 0.0)
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
    assert (played.stopped, played.asked) == ([], [])


def test_a_rank_that_spins_is_given_time_to_come_back(play: Any) -> None:
    played = play()
    visit = visited(one_at_a_line())
    closer(visit)
    assert played.asked == [[101], [101], [101]]
    assert [one.pid for one in visit.positions] == [100, 101]
    assert "spinning" in visit.parts


def test_one_that_came_back_is_not_asked_again(play: Any) -> None:
    played = play(digests="abb")
    closer(visited(one_at_a_line()))
    assert played.asked == [[101], [101]]


def test_one_that_computes_is_not_asked(play: Any) -> None:
    played = play(library="libpython3.11.so.1.0")
    closer(visited(one_at_a_line()))
    assert played.asked == []


def test_without_leave_no_thread_is_stopped(play: Any) -> None:
    played = play()
    closer(visited(one_at_a_line()), stop=False)
    assert played.stopped == []
