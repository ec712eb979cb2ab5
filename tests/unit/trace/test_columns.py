"""Rows in the model's order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace import columns
from grpo_doctor.trace.columns import DTYPES, Interned, in_order, join, spans_from
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def test_parents_come_before_children_that_are_as_long() -> None:
    build = TraceBuilder(ranks=2)
    build.span(1, "late", 5, 6)
    build.span(0, "sub", 0, 1, depth=2)
    build.span(0, "phase", 0, 1, depth=1)
    build.row(Kind.STEP, 0, "step", 0, 1, depth=0)
    trace = build.build()
    assert [trace.names[n] for n in trace.spans.name] == ["step", "phase", "sub", "late"]
    again = join([trace.spans])
    assert np.array_equal(again.start_ns, trace.spans.start_ns)


def test_nothing_has_all_columns() -> None:
    spans = join([])
    assert len(spans) == 0
    assert {name: getattr(spans, name).dtype for name in DTYPES} == {
        name: np.dtype(kind) for name, kind in DTYPES.items()
    }


def test_interning_is_dense_and_in_order() -> None:
    ids = Interned()
    assert [ids[name] for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]
    assert ids.names == ("b", "a", "c")


def test_rows_of_a_process_are_found_by_its_index() -> None:
    build = TraceBuilder(ranks=3)
    for rank, count in enumerate((2, 0, 3)):
        for at in range(count):
            build.span(rank, "train", at, at + 1)
    spans = build.build().spans
    assert [spans.of_process(rank) for rank in range(3)] == [slice(0, 2), slice(2, 2), slice(2, 5)]


ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=9)


def ordered(rows: list[tuple[int, int, int, int]]) -> list[tuple[int, ...]]:
    """Process, begin, end and depth of rows that have these, put in order."""
    names = ("process", "start_ns", "end_ns", "depth")
    table = {name: [row[column] for row in rows] for column, name in enumerate(names)}
    spans = in_order(spans_from({name: table.get(name, [0] * len(rows)) for name in DTYPES}))
    return list(zip(*(getattr(spans, name).tolist() for name in names)))


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 18])
@given(ROWS)
def test_any_rows_are_put_in_order_however_they_are_looked_through(
    block: int, rows: list[tuple[int, int, int, int]]
) -> None:
    usual = columns._BLOCK
    columns._BLOCK = block
    try:
        rows_in_order = ordered(rows)
    finally:
        columns._BLOCK = usual
    assert rows_in_order == sorted(rows, key=lambda row: (row[0], row[1], -row[2], row[3]))


def test_processes_of_more_than_16_bits_are_put_in_order_too() -> None:
    rows = [(70_000, 0, 1, 0), (3, 5, 6, 0), (40_000, 2, 3, 0), (3, 4, 6, 0)]
    assert ordered(rows) == sorted(rows)
