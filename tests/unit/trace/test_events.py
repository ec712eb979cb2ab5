"""Chrome Trace Event lines, each of them JSON whatever was recorded."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace import events
from grpo_doctor.trace.model import Kind, Series
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder


@given(st.integers(0, 2**51))
def test_microseconds_are_exact(ns: int) -> None:
    written = events.microseconds(ns)
    assert Fraction(written) * 1000 == ns
    assert round(float(written) * 1000) == ns, "also for readers that use floats"


def lines(build: TraceBuilder) -> list[dict[str, Any]]:
    trace = build.build()
    spans, lane = events.nested(trace)
    return [
        json.loads(line, parse_constant=pytest.fail)
        for line in events.span_lines(trace, spans, lane)
    ]


def test_the_kinds_of_events() -> None:
    build = TraceBuilder()
    build.step(0, 7, 0.0, {"rollout": 1.0})
    build.row(Kind.INSTANT, 0, "oom", 0.5, 0.5)
    build.collective(0, 3, 0.2, 0.3)
    build.open(0, "train", 1.0, 2.0)
    events = {e["name"]: e for e in lines(build)}
    assert (events["step"]["ph"], events["step"]["args"]) == ("X", {"step": 7})
    assert (events["rollout"]["ts"], events["rollout"]["dur"]) == (0.0, 1e6)
    assert (events["oom"]["ph"], events["oom"]["s"], "dur" in events["oom"]) == ("i", "t", False)
    assert (events["all_reduce"]["tid"], events["all_reduce"]["value"]) == (2, 3.0)
    assert (events["train"]["ph"], "dur" in events["train"]) == ("B", False)
    assert all(e["pid"] > 0 and e["tid"] > 0 for e in events.values())


HOSTILE = [
    "</script><script>", 'quote" and \\', "\x00\x1f\n", "\ud800 alone", "é·😀", "x" * 10**6, "",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_any_name_is_one_line_of_json(name: str) -> None:
    build = TraceBuilder()
    build.span(0, name, 0, 1, args={name: name})
    (event,) = lines(build)
    expected = name.encode("utf-8", "replace").decode()
    assert event["name"] == expected[: events.MAX_NAME]
    assert event["args"] == {expected: expected}
    trace = build.build()
    spans, lane = events.nested(trace)
    assert all("\n" not in line for line in events.span_lines(trace, spans, lane))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_json_lacks_are_left_out(value: float) -> None:
    build = TraceBuilder()
    build.row(Kind.STEP, 0, "step", 0, 1, value=value)
    build.span(0, "train", 0, 1, value=value)
    assert [e.get("value") for e in lines(build)] == [None, None]


def test_unicode_is_written_as_it_is() -> None:
    assert events.text("rank 0 · höst") == '"rank 0 · höst"'


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=15,
    )
)
def test_any_configuration_becomes_json(value: Any) -> None:
    json.loads(events.text(events.finite(value)), parse_constant=pytest.fail)


def test_a_configuration_without_end_becomes_json() -> None:
    value: list[Any] = []
    value.append(value)
    json.loads(events.text(events.finite(value)))


def series(values: list[float]) -> Series:
    return Series(
        name="gpu.power", unit="W", scope="gpu", host="a",
        t_ns=np.arange(len(values), dtype=np.int64) * 1000, values=np.array(values),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [list, dict])
def test_what_is_nested_too_deeply_becomes_text(kind: type) -> None:
    value: Any = 1
    for _ in range(70):
        value = [value] if kind is list else {"a": value}
    nested, depth = events.finite(value), 0
    while not isinstance(nested, str):
        nested, depth = nested[0] if kind is list else nested["a"], depth + 1
    assert depth == 64


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_past_64_bits_become_text(sign: int) -> None:
    assert events.finite(sign * 2**62) == sign * 2**62
    assert events.finite(sign * (2**62 + 1)) == str(sign * (2**62 + 1))


def test_as_many_samples_as_may_be_drawn_all_are() -> None:
    assert [v for _, v in events.thin(series([1.0, 5.0, 2.0, 3.0]), 4)] == [1, 5, 2, 3]
    assert [v for _, v in events.thin(series([1.0, 5.0, 2.0, 3.0, 4.0]), 4)] == [1, 5, 2, 4]


@given(st.lists(st.floats(), max_size=300), st.integers(2, 50))
def test_thinning_keeps_the_extremes(values: list[float], at_most: int) -> None:
    thinned = events.thin(series(values), at_most)
    finite = [v for v in values if math.isfinite(v)]
    assert len(thinned) <= max(at_most, 2)
    assert [t for t, _ in thinned] == sorted(t for t, _ in thinned)
    if finite:
        assert min(v for _, v in thinned) == min(finite)
        assert max(v for _, v in thinned) == max(finite)


def test_what_overlaps_goes_to_lanes_of_its_own() -> None:
    build = TraceBuilder()
    for number in range(5):
        build.span(0, "rollout/request", number * 0.1, number * 0.1 + 1)
    assert sorted(e["tid"] for e in lines(build)) == [1, 1001, 2001, 3001, 4001]


def test_tracks_are_named_in_the_process_that_has_them(tmp_path: Path) -> None:
    build = TraceBuilder(ranks=2).span(0, "train", 0, 1).collective(1, 1, 0, 1)
    build.span(1, "train", 0, 1, thread=3)
    path = tmp_path / "trace.json"
    write_trace(build.build(), path)
    rows = json.loads(path.read_text())["traceEvents"]
    track_names = [
        (row["pid"], row["args"]["name"]) for row in rows if row["name"] == "thread_name"
    ]
    assert track_names == [(1000, "steps and phases"), (2000, "collectives"), (2000, "thread 3")]
