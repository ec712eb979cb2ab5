"""Stretches of time in which a device was at work."""

from __future__ import annotations

import pytest

from grpo_doctor.importers.kineto.rank import Activity, nanoseconds
from grpo_doctor.trace.intervals import Intervals


def pairs_of(stretches: Intervals) -> list[tuple[int, int]]:
    return list(zip(stretches.start_ns.tolist(), stretches.end_ns.tolist(), strict=True))


@pytest.mark.parametrize(
    ("us", "ns"),
    [
        (0.0, 0), (1.5, 1500), (0.0004, 0), (0.0006, 1), (2.9996, 3000),
        (1669783687384669.25, 1_669_783_687_384_669_250),
    ],
)  # fmt: skip
def test_microseconds_become_nanoseconds(us: float, ns: int) -> None:
    assert nanoseconds(us) == ns
    activity = Activity()
    activity.start_us.append(us)
    activity.length_us.append(1.25)
    assert pairs_of(activity.merged(100)) == [(ns + 100, ns + 1350)]


def test_kernels_in_any_order_are_one_activity() -> None:
    activity = Activity()
    activity.start_us.extend([5.0, 1.0, 2.0])
    activity.length_us.extend([2.0, 1.0, 0.5])
    assert pairs_of(activity.merged(0)) == [(1000, 2500), (5000, 7000)]
