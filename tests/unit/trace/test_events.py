"""Chrome Trace Event lines, each of them JSON whatever was recorded."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace import events
from grpo_doctor.trace.model import Kind
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


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=300),
    st.integers(2, 50),
)
def test_thinning_keeps_the_extremes(values: list[float], at_most: int) -> None:
    samples = np.array(values)
    t_ns, kept = events.thinned(np.arange(len(samples)), samples, at_most)
    assert len(kept) <= at_most
    assert (np.diff(t_ns) > 0).all()
    assert (kept.min(), kept.max()) == (samples.min(), samples.max())
