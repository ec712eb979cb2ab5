"""Which ranks are worth a look; in any order of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest

from grpo_doctor_probes.supervisor.observe import Activity, Marks
from grpo_doctor_probes.supervisor.standing import (
    FIRST_S,
    FLOOR_S,
    GONE,
    Lengths,
    Standing,
)
from grpo_doctor_probes.supervisor.suspicion import (
    MOST_RETRY_S,
    RETRY_S,
    STANDSTILL_S,
    Presence,
    Retries,
    Suspicion,
    Why,
    suspect,
)

S = 1_000_000_000
ONE: Marks = frozenset({(1, "reward", (5, 0)), (2, "reward", (7, 0))})
SAME_BUT_FOR_ONE: Marks = frozenset({(1, "reward", (5, 0)), (2, "train", (90, 0))})
OTHER: Marks = frozenset({(1, "reward", (80, 0))})
NOW_NS = 10_000 * S


def waits_s(retries: Retries, marks: Marks, times: int) -> list[float]:
    """How long each of so many looks that could not tell puts the next one off."""
    now_s, waits = 0.0, []
    for _ in range(times):
        retries.put_off(marks, round(now_s * S))
        began_s = now_s
        while not retries.due(marks, round(now_s * S)):
            now_s += 1
        waits.append(now_s - began_s)
    return waits


def test_one_suspicion_is_looked_at_later_and_later() -> None:
    waits = waits_s(Retries(), ONE, 7)
    assert (
        waits == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S, 16 * RETRY_S] + [MOST_RETRY_S] * 2
    )


def test_another_suspicion_waits_for_nothing_and_begins_anew() -> None:
    retries = Retries()
    waits_s(retries, ONE, 6)
    retries.put_off(ONE, 0)
    assert not retries.due(ONE, 100 * S)
    assert not retries.due(SAME_BUT_FOR_ONE, 100 * S)
    assert retries.due(OTHER, 100 * S)
    assert waits_s(retries, OTHER, 1) == [RETRY_S]


def test_after_a_failure_all_wait_and_longer_each_time_until_one_went_well() -> None:
    retries = Retries()
    retries.fail(0)
    assert not retries.due(OTHER, round((RETRY_S - 1) * S))
    assert retries.due(OTHER, round(RETRY_S * S))
    retries.fail(0)
    assert not retries.due(OTHER, round((2 * RETRY_S - 1) * S))
    assert retries.failures == 2
    for _ in range(9):
        retries.fail(0)
    assert retries.due(ONE, round(MOST_RETRY_S * S))
    retries.settle()
    retries.fail(0)
    assert retries.due(ONE, round(RETRY_S * S))


def test_who_gave_up_never_looks_again() -> None:
    retries = Retries()
    retries.give_up()
    assert not retries.due(ONE, 10**9 * S)


def stand(rank: int, place: str, age_s: float, *, first: bool = False) -> Standing:
    waits = "all_" in place
    return Standing(rank, 100 + rank, place, NOW_NS - round(age_s * S), first, waits)


def doing(state: str, for_s: float = 0, idle_s: float = 100) -> Activity:
    return Activity(state, NOW_NS - round(for_s * S), NOW_NS - round(idle_s * S))


def look(
    standings: Sequence[Standing],
    activities: Mapping[int, Activity] | None = None,
    lengths: Lengths | None = None,
) -> Suspicion | None:
    suspicion = {
        suspect(order, activities or {}, lengths or Lengths(timeout_s=1800), NOW_NS)
        for order in itertools.permutations(standings)
    }
    assert len(suspicion) == 1, "the order of ranks matters"
    return suspicion.pop()


def test_nobody_late_nobody_suspected() -> None:
    assert look([stand(0, "rollout", FLOOR_S - 1), stand(1, "train, in all_reduce", 2)]) is None


def test_who_is_late_by_itself_is_suspected_and_not_those_who_wait_for_it() -> None:
    suspicion = look(
        [stand(r, "reward, in all_gather", 50) for r in (0, 2)] + [stand(1, "reward", 51)]
    )
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.pids, suspicion.place, suspicion.why) == (
        (1,),
        (101,),
        "reward",
        "long",
    )
    assert suspicion.in_words() == "rank 1 has been in reward for 51 s"


def test_if_all_wait_all_are_suspected() -> None:
    suspicion = look([stand(r, "train, in all_reduce", 50 + r) for r in range(3)])
    assert suspicion is not None
    assert suspicion.ranks == (0, 1, 2)
    assert suspicion.age_s == 52
    assert suspicion.in_words() == "ranks 0, 1, 2 have been in train, in all_reduce for 52 s"


def test_who_waits_for_a_rank_at_work_is_not_late() -> None:
    lengths = Lengths()
    lengths.learn("rollout", 100.0)
    ranks = [stand(0, "reward, in all_gather", 80), stand(1, "rollout", 200)]
    assert look(ranks, {101: doing("R", idle_s=1)}, lengths) is None
    suspicion = look(ranks, {101: doing("S", idle_s=70)}, lengths)
    assert suspicion is not None
    assert suspicion.ranks == (0,)


def test_the_first_of_a_phase_may_take_longer() -> None:
    assert look([stand(0, "rollout", FIRST_S - 1, first=True)]) is None
    assert look([stand(0, "rollout", FIRST_S + 1, first=True)]) is not None


def test_a_stopped_rank_is_suspected_long_before_its_phase_is_late() -> None:
    lengths = Lengths()
    lengths.learn("rollout", 1000.0)
    ranks = [stand(0, "rollout", 40), stand(1, "rollout", 40)]
    soon = {101: doing("T", STANDSTILL_S - 1)}
    assert look(ranks, soon, lengths) is None
    suspicion = look(ranks, {101: doing("T", STANDSTILL_S + 1)}, lengths)
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.why) == ((1,), "stopped")
    assert suspicion.in_words() == "rank 1 has been stopped for 11 s"


def test_a_dead_rank_whose_launcher_stays_is_suspected() -> None:
    ranks = [stand(0, "rollout", 12), stand(1, GONE, 12)]
    suspicion = look(ranks, {101: doing(GONE, 12)})
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.why) == ((1,), "gone")


def test_a_collective_is_looked_at_before_the_backends_timeout() -> None:
    lengths = Lengths(timeout_s=600)
    lengths.learn("rollout", 400.0)
    lengths.learn("rollout, in all_gather", 400.0)
    ranks = [stand(0, "rollout, in all_gather", 479), stand(1, "rollout", 479)]
    working = {101: doing("R", idle_s=0)}
    assert look(ranks, working, lengths) is None
    suspicion = look(
        [stand(0, "rollout, in all_gather", 481), stand(1, "rollout", 481)], working, lengths
    )
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.why, suspicion.limit_s) == ((0,), "timeout", 480)


@pytest.mark.parametrize("place", ["between phases", "silent"])
def test_what_is_no_phase_reads_well(place: str) -> None:
    suspicion = look([stand(3, place, 60)])
    assert suspicion is not None
    assert suspicion.in_words() == f"rank 3 has been {place} for 60 s"


@pytest.mark.parametrize(
    ("looks_s", "missed_s"),
    [
        ([1000.0], 0),
        ([1000.0, 1000.5, 1005.5], 0),
        ([1000.0, 1000.5, 1005.6], 5.1),
        ([1000.0, 1002.0, 1008.0], 0),  # three times as long as the one before
        ([1000.0, 1002.0, 1008.1], 6.1),
        ([1000.0, 1100.0], 100),
        ([1000.0, 1100.0, 1100.5], 0),
    ],
)
def test_when_a_look_comes_after_an_absence(looks_s: list[float], missed_s: float) -> None:
    presence = Presence()
    missed = [presence.missed_ns(round(look * S)) for look in looks_s]
    assert missed[-1] == round(missed_s * S)


def test_a_look_that_is_put_off_is_due_at_its_time() -> None:
    retries = Retries()
    retries.put_off(ONE, 100 * S)
    due_ns = 100 * S + round(RETRY_S * S)
    assert [retries.due(ONE, at_ns) for at_ns in (due_ns - 1, due_ns)] == [False, True]
    retries.fail(200 * S)
    due_ns = 200 * S + round(RETRY_S * S)
    assert [retries.due(OTHER, at_ns) for at_ns in (due_ns - 1, due_ns)] == [False, True]


@pytest.mark.parametrize(
    ("age_s", "suspected"), [(STANDSTILL_S, False), (STANDSTILL_S + 0.001, True)]
)
@pytest.mark.parametrize("state", ["T", GONE])
def test_a_standstill_is_one_after_its_time(state: str, age_s: float, *, suspected: bool) -> None:
    place = GONE if state == GONE else "rollout"
    suspicion = look([stand(1, place, age_s)], {101: doing(state, age_s)})
    assert (suspicion is not None) is suspected


def test_a_rank_that_is_gone_counts_before_one_that_is_stopped() -> None:
    ranks = [stand(0, "rollout", 90), stand(1, GONE, 12), stand(2, "rollout", 90)]
    doings = {100: doing("T", 50), 101: doing(GONE, 12), 102: doing("R")}
    suspicion = look(ranks, doings)
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.why, suspicion.age_s) == ((1,), "gone", 12)
    suspicion = look(ranks, {100: doing("T", 50), 101: doing(GONE, 9), 102: doing("T", 3)})
    assert suspicion is not None
    # The one that is stopped for long, and the other one with it.
    assert (suspicion.ranks, suspicion.why, suspicion.age_s) == ((0, 2), "stopped", 50)


@pytest.mark.parametrize(("age_s", "suspected"), [(480, False), (480.001, True)])
@pytest.mark.parametrize("place", ["train, in all_reduce", "silent", "busy without a pause"])
def test_a_wait_is_near_its_timeout_after_four_fifths(
    place: str, age_s: float, *, suspected: bool
) -> None:
    lengths = Lengths(timeout_s=600)
    lengths.learn(place, 1000.0)
    suspicion = look([stand(0, place, age_s)], None, lengths)
    assert (suspicion and suspicion.why) == ("timeout" if suspected else None)


@pytest.mark.parametrize(("age_s", "suspected"), [(FLOOR_S, False), (FLOOR_S + 0.001, True)])
def test_a_phase_is_late_after_its_limit(age_s: float, *, suspected: bool) -> None:
    suspicion = look([stand(0, "train", age_s), stand(1, "train", 1)])
    assert (suspicion is not None) is suspected
    if suspicion is not None:
        assert (suspicion.ranks, suspicion.limit_s, suspicion.why) == ((0,), FLOOR_S, "long")


@pytest.mark.parametrize(("idle_s", "at_work"), [(5.0, True), (5.001, False)])
def test_a_rank_is_at_work_that_ran_within_five_seconds(idle_s: float, *, at_work: bool) -> None:
    ranks = [stand(0, "reward, in all_gather", 50), stand(1, "rollout", 20)]
    suspicion = look(ranks, {101: doing("S", idle_s=idle_s)})
    assert (suspicion is None) is at_work


def test_a_rank_that_waits_is_not_at_work_whatever_it_burns() -> None:
    ranks = [stand(0, "reward, in all_gather", 50), stand(1, "train, in all_reduce", 20)]
    suspicion = look(ranks, {101: doing("R", idle_s=0)})
    assert suspicion is not None
    assert suspicion.ranks == (0,)


def test_of_several_places_the_one_with_the_oldest_and_of_two_as_old_the_lower_rank() -> None:
    suspicion = look([stand(2, "reward", 60), stand(0, "train", 50), stand(1, "reward", 40)])
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.place, suspicion.age_s) == ((1, 2), "reward", 60)
    suspicion = look([stand(2, "reward", 60), stand(1, "train", 60)])
    assert suspicion is not None
    assert (suspicion.ranks, suspicion.place) == ((1,), "train")


def test_one_limit_is_told_the_lowest_that_was_passed() -> None:
    lengths = Lengths()
    lengths.learn("rollout", 20.0)
    suspicion = look([stand(0, "rollout", 90), stand(1, "train", 80)], None, lengths)
    assert suspicion is not None
    assert (suspicion.place, suspicion.limit_s) == ("rollout", FLOOR_S)


@pytest.mark.parametrize(
    ("ranks", "why", "words"),
    [
        ((3,), "long", "rank 3 has been in reward for 95 s"),
        ((1, 3), "long", "ranks 1, 3 have been in reward for 95 s"),
        ((1, 3), "gone", "ranks 1, 3 have been gone for 95 s"),
        ((3,), "stopped", "rank 3 has been stopped for 95 s"),
        ((3,), "timeout", "rank 3 has been in reward for 95 s"),
    ],
)
def test_a_suspicion_in_words(ranks: tuple[int, ...], why: Why, words: str) -> None:
    assert Suspicion(ranks, ranks, "reward", 95.4, 35.0, why).in_words() == words
