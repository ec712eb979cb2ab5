from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import BEGIN, END, gap_seconds
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def test_gaps_are_named_by_their_neighbours_largest_first() -> None:
    build = TraceBuilder()
    for number in range(2):
        at = 20.0 * number
        build.span(0, "rollout", at + 1, at + 5).span(0, "train", at + 8, at + 10)
        build.row(Kind.STEP, 0, "step", at, at + 12, depth=0, value=number)
    found = gap_seconds(analyse(build.build()))
    assert found == {
        ("rollout", "train"): pytest.approx(3),
        ("train", END): pytest.approx(2),
        (BEGIN, "rollout"): pytest.approx(1),
    }
    assert next(iter(found)) == ("rollout", "train")
