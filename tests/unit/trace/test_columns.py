"""Rows in the model's order."""

from __future__ import annotations

import numpy as np

from grpo_doctor.trace.columns import DTYPES, Interned, join
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
