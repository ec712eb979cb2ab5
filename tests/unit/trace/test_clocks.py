"""Clocks of several processes and hosts on one axis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace.jsonfile import MAX_TIME_NS
from grpo_doctor.trace.model import SAME_CLOCK, Clock
from grpo_doctor.trace.timeline import NTP_ERROR_NS, align

NANOSECONDS = st.integers(0, 10**18)


def facts(clock_id: str, *readings: tuple[int, int]) -> dict[str, Any]:
    """A rank file's clock: (monotonic, unix) readings."""
    return {
        "clock_id": clock_id,
        "clocks": [{"monotonic_ns": m, "unix_ns": u} for m, u in readings],
    }


@given(NANOSECONDS, NANOSECONDS)
def test_one_clock_needs_no_correction(a: int, b: int) -> None:
    assert align(facts("boot", (a, b)), facts("boot", (b, a))) == SAME_CLOCK


@given(boot=NANOSECONDS, other_boot=NANOSECONDS, now=st.integers(0, 10**17))
def test_the_same_moment_is_the_same_time(boot: int, other_boot: int, now: int) -> None:
    reference = facts("a", (now, boot + now))
    other = facts("b", (now, other_boot + now))
    alignment = align(reference, other)
    unix = max(boot, other_boot) + now
    assert unix - other_boot + alignment.offset_ns == unix - boot
    assert alignment.error_ns == NTP_ERROR_NS


@given(drift=st.integers(-(10**9), 10**9))
def test_drift_between_start_and_end_is_part_of_the_error(drift: int) -> None:
    reference = facts("a", (0, 10**18), (10**9, 10**18 + 10**9))
    other = facts("b", (0, 10**18), (10**9, 10**18 + 10**9 + drift))
    assert align(reference, other).error_ns == NTP_ERROR_NS + abs(drift)


@given(NANOSECONDS, NANOSECONDS)
def test_swapping_the_two_turns_the_sign(a: int, b: int) -> None:
    first, second = facts("a", (5, a)), facts("b", (7, b))
    assert align(first, second).offset_ns == -align(second, first).offset_ns


@pytest.mark.parametrize("damaged", [
    {},
    {"clocks": None},
    {"clocks": 5},
    {"clocks": "text"},
    {"clocks": [5, None, "x", []]},
    {"clocks": [{"unix_ns": "1", "monotonic_ns": 2}]},
    {"clocks": [{"unix_ns": 10**30, "monotonic_ns": 2}]},
    {"clocks": [{"unix_ns": 1.5, "monotonic_ns": True}]},
    {"clock_id": "", "clocks": []},
    {"clock_id": {"a": 1}},
])  # fmt: skip
def test_what_says_nothing_of_its_clock_is_unknown(damaged: dict[str, Any]) -> None:
    complete = facts("a", (0, 10**18))
    assert align(complete, damaged) == Clock()
    assert align(damaged, complete) == Clock()


def test_two_hosts_are_put_on_one_axis_by_their_wall_clocks() -> None:
    here = {"clock_id": "a", "clocks": [{"unix_ns": 1_000, "monotonic_ns": 100}]}
    there = {"clock_id": "b", "clocks": [{"unix_ns": 1_000, "monotonic_ns": 700}]}
    assert align(here, there) == Clock(-600, 10_000_000, "wall clock")
    assert align(there, here).offset_ns == 600
    nameless = {"clocks": here["clocks"]}
    assert align(nameless, nameless).method == "wall clock"


@pytest.mark.parametrize(("beyond", "method"), [(0, "wall clock"), (1, "unknown")])
def test_hosts_that_were_booted_36_years_apart_are_not_believed(beyond: int, method: str) -> None:
    other = facts("b", (0, MAX_TIME_NS + beyond))
    assert align(facts("a", (0, 0)), other).method == method
    assert align(other, facts("a", (0, 0))).method == method
