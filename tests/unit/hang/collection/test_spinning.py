"""When ranks are looked at closer, and for how long."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.collection.examine import Visit, look_closer
from grpo_doctor_probes.evidence import Role
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.collection.played import Play, Played
from tests.unit.hang.decision.test_library_threads import with_threads

ITEM = frames("compute_loss /home/me/train.py:5", "main /home/me/train.py:9")


def closer(played: Played, *, stop: bool = True, wait_s: float = 0.0) -> Visit:
    played.library = played.library or "libcuda.so.1"
    visit = played.visited()
    look_closer(visit, played.say, stop=stop, wait_s=wait_s)
    return visit


def at_a_line(*spinning: int, ranks: int = 2) -> EvidenceBuilder:
    build = EvidenceBuilder(ranks=ranks)
    for rank in spinning:
        build.rank(rank).works(ITEM, moves=False)
    return build


@pytest.mark.parametrize(
    ("spinning", "library", "digests", "stop", "stopped", "digested"),
    [
        ((), "libcuda.so.1", "aaa", True, [], []),
        ((1,), "libcuda.so.1", "aaa", True, [[100, 101]], [[101]] * 3),  # it may come back
        ((1,), "libcuda.so.1", "abb", True, [[100, 101]], [[101]] * 2),  # it came back
        ((1,), "libpython3.11.so.1.0", "aaa", True, [[100, 101]], []),  # it computes
        ((1,), "libcuda.so.1", "aaa", False, [], []),
    ],
)
def test_ranks_that_use_a_core_at_one_line_are_looked_at_closer(
    spinning: tuple[int, ...],
    library: str,
    digests: str,
    stop: bool,
    stopped: list[list[int]],
    digested: list[list[int]],
    play: Play,
) -> None:
    played = play(at_a_line(*spinning))
    played.library, played.digests = library, list(digests)
    closer(played, stop=stop)
    assert (played.of("positions"), played.of("digests")) == (stopped, digested)


def test_processes_that_are_neither_ranks_nor_of_engines_are_left_alone(play: Play) -> None:
    build = at_a_line(1)
    roles: tuple[Role, ...] = ("helper", "reward", "server", "engine", "engine-worker")
    for number, role in enumerate(roles):
        build.child(0, role, pid=200 + number).works(ITEM, moves=False)
    played = play(build)
    visit = closer(played)
    assert [position.pid for position in visit.seen.positions] == [100, 101, 203, 204]
    assert played.of("digests")[0] == [101, 203, 204]


def test_of_many_that_spin_the_first_sixteen_are_asked(play: Play) -> None:
    played = play(at_a_line(*range(1, 18), ranks=18))
    closer(played)
    assert played.of("digests") == [list(range(101, 117))] * 3


@pytest.mark.parametrize(
    ("digest_s", "slept"),
    [(0.0, [0.5, 1.0]), (0.125, [0.375, 0.875]), (0.5, [0.0, 0.5]), (2.0, [0.0, 0.0])],
)
def test_the_moments_are_half_a_second_and_then_a_wait_after_the_first(
    digest_s: float, slept: list[float], play: Play
) -> None:
    played = play(at_a_line(1))
    played.digest_s = digest_s
    closer(played, wait_s=1.5)
    assert played.clock.slept == slept


def test_a_rank_asleep_over_a_library_s_threads_is_looked_at_closer(play: Play) -> None:
    played = play(at_a_line())
    played.evidence = with_threads(played.evidence, 101, 0.9)
    closer(played)
    assert (played.of("positions"), played.of("digests")) == ([[100, 101]], [])
