"""Where a rank stands, and what its headers teach about lengths."""

from __future__ import annotations

from grpo_doctor_probes import layout
from grpo_doctor_probes.supervisor.standing import (
    BETWEEN_PHASES,
    OUTSIDE_OF_PHASES,
    Follower,
    Lengths,
    place_of,
)
from tests.unit.probes.supervisor.headers_in_code import S, header, span

STEP = span("step", 1, layout.STEP)


class Known(Lengths):
    """Remembers what it was taught."""

    def __init__(self) -> None:
        super().__init__()
        self.taught: list[tuple[str, float]] = []

    def learn(self, name: str, length_s: float) -> None:
        super().learn(name, length_s)
        self.taught.append((name, length_s))


def test_places_are_named_after_the_innermost_phase() -> None:
    gather = span("all_gather", 4, layout.COLLECTIVE)
    assert place_of(()) == OUTSIDE_OF_PHASES
    assert place_of((STEP,)) == BETWEEN_PHASES
    assert place_of((STEP, span("rollout", 2), span("rollout/generate", 3))) == "rollout/generate"
    assert place_of((STEP, span("reward", 2), gather)) == "reward, in all_gather"
    assert place_of((gather,)) == "all_gather"


def test_a_span_that_has_ended_is_learned_with_its_length() -> None:
    lengths = Known()
    follower = Follower(lengths)
    follower.follow(header(STEP, span("rollout", 2)), 3 * S)
    follower.follow(header(STEP, span("rollout", 2)), 9 * S)
    assert lengths.taught == []
    follower.follow(header(STEP, span("reward", 10)), 11 * S)
    assert lengths.taught == [("rollout", 9.0)]


def test_an_age_counts_from_the_spans_own_begin() -> None:
    standing = Follower(Lengths()).follow(header(STEP, span("rollout", 2)), 30 * S)
    assert standing.place == "rollout"
    assert standing.age_s(30 * S) == 28


def test_only_the_first_span_of_a_name_is_the_first() -> None:
    follower = Follower(Lengths())
    assert follower.follow(header(STEP, span("rollout", 2)), 3 * S).first
    assert follower.follow(header(STEP, span("rollout", 2)), 90 * S).first
    assert not follower.follow(header(STEP, span("rollout", 95)), 96 * S).first


def test_a_phase_too_short_to_be_seen_open_is_known_from_the_table_of_names() -> None:
    follower = Follower(Lengths())
    follower.follow(header(STEP, span("rollout", 2), names=("rollout", "reward")), 3 * S)
    standing = follower.follow(
        header(STEP, span("reward", 50), names=("rollout", "reward")), 51 * S
    )
    assert not standing.first


def test_a_collective_waits_and_is_as_new_as_its_phase() -> None:
    follower = Follower(Lengths())
    gather = span("all_gather", 4, layout.COLLECTIVE)
    standing = follower.follow(header(STEP, span("reward", 2), gather), 5 * S)
    assert standing.waits
    assert standing.first
    later = span("all_gather", 24, layout.COLLECTIVE)
    assert not follower.follow(header(STEP, span("reward", 22), later), 25 * S).first


def test_between_phases_counts_from_when_it_was_first_seen_so() -> None:
    lengths = Known()
    follower = Follower(lengths)
    follower.follow(header(STEP, span("rollout", 2)), 3 * S)
    assert follower.follow(header(STEP), 10 * S).since_ns == 10 * S
    assert follower.follow(header(STEP), 14 * S).since_ns == 10 * S
    follower.follow(header(STEP, span("train", 15)), 15 * S)
    assert (BETWEEN_PHASES, 5.0) in lengths.taught
    assert follower.follow(header(STEP), 20 * S).since_ns == 20 * S


def test_phases_that_came_and_went_between_two_looks_are_not_overlooked() -> None:
    follower = Follower(Lengths())
    follower.follow(header(STEP, begun_s=2), 3 * S)
    standing = follower.follow(header(STEP, begun_s=2), 50 * S)
    assert (standing.place, standing.since_ns) == (BETWEEN_PHASES, 3 * S)
    moved = follower.follow(header(STEP, begun_s=52), 60 * S)
    assert (moved.place, moved.since_ns) == (BETWEEN_PHASES, 60 * S)
    assert moved.mark != standing.mark


def test_what_began_and_ended_within_a_phase_is_a_move_and_leaves_its_age() -> None:
    follower = Follower(Lengths())
    before = follower.follow(header(STEP, span("train", 2)), 10 * S)
    after = follower.follow(header(STEP, span("train", 2), begun_s=11), 12 * S)
    assert (before.since_ns, after.since_ns) == (2 * S, 2 * S)
    assert before.mark != after.mark


def test_what_was_found_stuck_is_no_example() -> None:
    lengths = Known()
    follower = Follower(lengths)
    follower.follow(header(STEP, span("reward", 2)), 300 * S)
    follower.distrust()
    follower.follow(header(STEP, span("train", 400)), 401 * S)
    follower.follow(header(STEP, span("reward", 402)), 403 * S)
    follower.follow(header(STEP), 405 * S)
    assert ("train", 3.0) in lengths.taught
    assert [length for name, length in lengths.taught if name == "reward"] == [3.0]


def test_threads_beside_the_steps_do_not_count() -> None:
    prefetch = span("prefetch", 1, thread=0)
    follower = Follower(Lengths())
    stack = (prefetch, span("step", 2, layout.STEP, thread=1), span("train", 3, thread=1))
    assert follower.follow(header(*stack), 4 * S).place == "train"
