"""Sampled series as curves: which ones, how they are called, and which points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from grpo_doctor.document.views.timeline import MAX_TRACKS, track_entries
from grpo_doctor.trace.events import thinned
from grpo_doctor.trace.model import Series, Trace
from tests.build import TraceBuilder

NAN = float("nan")


def sampled(*names: str, **more: Any) -> TraceBuilder:
    build = TraceBuilder()
    for name in names:
        build.series(name, "%", [0, 1], [1.0, 2.0], **more)
    return build


def labels(trace: Trace) -> list[str]:
    return [entry.label for entry in track_entries(trace)[0]]


@pytest.mark.parametrize(("more", "label"), [
    ({}, "x"),
    ({"gpu": "GPU-a"}, "x GPU 3"),
    ({"gpu": "GPU-b"}, "x GPU GPU-b"),
    ({"rank": 0}, "x rank 0"),
    ({"pid": 12}, "x pid 12"),
    ({"rank": 0, "pid": 12}, "x rank 0"),
    ({"gpu": "GPU-a", "rank": 1}, "x GPU 3 rank 1"),
])  # fmt: skip
def test_a_curve_is_called_by_what_it_was_sampled_of(more: dict[str, Any], label: str) -> None:
    build = sampled("x", **more).gpu("GPU-a", index=3)
    assert labels(build.build()) == [label]


def on_host(series: Series, host: str) -> Series:
    return replace(series, host=host)


def test_hosts_are_named_where_there_are_several() -> None:
    trace = sampled("x", "y", "z").build()
    x, y, z = trace.series
    assert labels(trace) == ["x", "y", "z"]
    several = replace(trace, series=(x, on_host(y, "host-b"), on_host(z, "")))
    assert labels(several) == ["x host-a", "y host-b", "z"]


def test_a_joined_server_is_called_by_its_role_where_its_process_is_known() -> None:
    build = sampled("queue", scope="server", pid=4000)
    build.roles[0] = "rollout server"
    trace = build.build()
    (entry,) = track_entries(trace)[0]
    assert (entry.label, entry.group) == ("rollout server of host-a, pid 4000: queue", "rank")
    unknown = replace(trace, series=(replace(trace.series[0], pid=77),))
    assert labels(unknown) == ["server of host-a, pid 77: queue"]
    nameless = replace(trace, series=(replace(trace.series[0], pid=None),))
    assert track_entries(nameless)[0][0].group == "host"


@pytest.mark.parametrize(
    ("scope", "group"),
    [("gpu", "gpu"), ("host", "host"), ("rank", "rank"), ("counter", "rank"), ("mine", "host")],
)
def test_curves_are_grouped_by_what_they_are_of(scope: str, group: str) -> None:
    (entry,) = track_entries(sampled("x", scope=scope).build())[0]
    assert entry.group == group


def test_what_a_reader_looks_at_first_comes_first_and_the_rest_by_name() -> None:
    trace = sampled("b", "host.cpu", "a", "gpu.util", "gpu.power").build()
    entries, left_out = track_entries(trace)
    assert [entry.name for entry in entries] == ["gpu.util", "host.cpu", "gpu.power", "a", "b"]
    assert left_out == 0


def test_curves_without_a_known_value_are_none_and_very_many_are_counted() -> None:
    build = sampled(*(f"s{number:02d}" for number in range(MAX_TRACKS + 3)))
    build.series("gpu.util", "%", [0, 1], [NAN, NAN])
    entries, left_out = track_entries(build.build())
    assert [entry.name for entry in entries] == [f"s{n:02d}" for n in range(MAX_TRACKS)]
    assert left_out == 3


@pytest.mark.parametrize(("values", "limit", "expected"), [
    ([3, 1, 2, 4], 4, [3, 1, 2, 4]),
    ([3, 1, 2, 4, 5], 4, [3, 1, 2, 5]),
    ([5, 1, 1, 1, 1, 1, 1, 9], 4, [5, 1, 1, 9]),
    ([7, 7, 7, 7, 7, 7], 4, [7, 7, 7, 7]),
    ([NAN, 2, 3, 1, NAN, 4], 2, [1, 4]),
    ([NAN, NAN, NAN, 1, 5, 3], 4, [NAN, 1, 5]),
    ([1, 2, 3, 4, 5, 6], 2, [1, 6]),
])  # fmt: skip
def test_of_each_stretch_the_smallest_and_the_largest_stay(
    values: Sequence[float], limit: int, expected: Sequence[float]
) -> None:
    times = np.arange(len(values), dtype=np.int64)
    t_ns, points = thinned(times, np.array(values, dtype=np.float64), limit)
    assert np.array_equal(points, np.array(expected, dtype=np.float64), equal_nan=True)
    assert (np.diff(t_ns) > 0).all()
    assert np.array_equal(np.array(values)[t_ns], points, equal_nan=True)
