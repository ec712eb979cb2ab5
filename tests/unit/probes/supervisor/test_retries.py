"""When what could not be settled is looked at again."""

from __future__ import annotations

from grpo_doctor_probes.supervisor.suspicion import MOST_RETRY_S, RETRY_S, Marks, Retries

S = 1_000_000_000
ONE: Marks = frozenset({(1, "reward", (5, 0)), (2, "reward", (7, 0))})
SAME_BUT_FOR_ONE: Marks = frozenset({(1, "reward", (5, 0)), (2, "train", (90, 0))})
OTHER: Marks = frozenset({(1, "reward", (80, 0))})


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
