from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.per_step import BEGIN, END, gap_seconds, unattributed_span_seconds
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def test_gaps_are_named_by_their_neighbours_largest_first() -> None:
    build = TraceBuilder()
    for number in range(2):
        at = 20.0 * number
        build.span(0, "rollout", at + 1, at + 5).span(0, "train", at + 8, at + 10)
        build.row(Kind.STEP, 0, "step", at, at + 12, depth=0, value=number)
    gaps = gap_seconds(analyse(build.build()))
    assert gaps == {
        ("rollout", "train"): pytest.approx(3),
        ("train", END): pytest.approx(2),
        (BEGIN, "rollout"): pytest.approx(1),
    }
    assert next(iter(gaps)) == ("rollout", "train")


def test_what_the_users_own_spans_have_of_the_gaps() -> None:
    build = TraceBuilder()
    for number in range(2):
        at = 20.0 * number
        build.span(0, "train", at + 1, at + 5).span(0, "callback/Journal.on_log", at + 5, at + 8)
        build.span(0, "callback/Slow.on_step_end", at + 4, at + 6)  # one second of it in `train`
        build.row(Kind.STEP, 0, "step", at, at + 12, depth=0, value=number)
    seconds = unattributed_span_seconds(analyse(build.build()))
    assert seconds == {
        "callback/Journal.on_log": pytest.approx(3),
        "callback/Slow.on_step_end": pytest.approx(1),
    }
    assert next(iter(seconds)) == "callback/Journal.on_log"
