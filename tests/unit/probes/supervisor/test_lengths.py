"""What is usual is learned, and from when on it is too long."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.supervisor.standing import (
    FACTOR,
    FIRST_S,
    FLOOR_S,
    OF_TIMEOUT,
    PATIENCE,
    Lengths,
    p99,
)


def test_the_first_of_a_name_gets_the_generous_limit() -> None:
    lengths = Lengths()
    assert lengths.limit_s("rollout", first=True) == FIRST_S
    assert not lengths.knows("rollout")


def test_short_phases_get_the_floor() -> None:
    lengths = Lengths()
    for _ in range(50):
        lengths.learn("train", 0.4)
    assert lengths.limit_s("train", first=False) == FLOOR_S


def test_long_phases_get_a_multiple_of_their_p99() -> None:
    lengths = Lengths()
    for length_s in (100.0,) * 99 + (200.0,) * 5:
        lengths.learn("rollout", length_s)
    assert lengths.limit_s("rollout", first=False) == FACTOR * 200
    assert lengths.limit_s("train", first=False) == FLOOR_S


def test_only_the_latest_count() -> None:
    lengths = Lengths()
    lengths.learn("rollout", 1000.0)
    for _ in range(300):
        lengths.learn("rollout", 20.0)
    assert lengths.limit_s("rollout", first=False) == FACTOR * 20


def test_a_wrong_suspicion_makes_the_limit_twice_the_age_and_never_smaller() -> None:
    lengths = Lengths()
    lengths.learn("reward", 1.0)
    lengths.tolerate("reward", 50.0)
    assert lengths.limit_s("reward", first=False) == PATIENCE * 50
    lengths.tolerate("reward", 10.0)
    assert lengths.limit_s("reward", first=False) == PATIENCE * 50
    assert lengths.limit_s("train", first=True) == FIRST_S


def test_the_users_limit_holds_for_all_until_it_was_wrong() -> None:
    lengths = Lengths(fixed_s=7.0)
    for _ in range(9):
        lengths.learn("rollout", 300.0)
    assert lengths.limit_s("rollout", first=False) == 7
    assert lengths.limit_s("init", first=True) == 7
    lengths.tolerate("rollout", 8.0)
    assert lengths.limit_s("rollout", first=False) == 16


def test_collectives_are_looked_at_before_the_backend_gives_up() -> None:
    assert Lengths(timeout_s=600).collective_limit_s == OF_TIMEOUT * 600 < 600


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), 0.0), ((3.0,), 3.0), (tuple(map(float, range(1, 101))), 99.0)],
)
def test_p99_is_the_nearest_rank(values: tuple[float, ...], expected: float) -> None:
    assert p99(values) == expected
