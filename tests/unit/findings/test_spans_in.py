from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.span_counts import (
    collectives_per_step,
    seconds_just_after,
    seconds_just_before,
    span_lengths,
    times_per_step,
)
from tests.build import TraceBuilder


def view(ranks: int = 2) -> RunView:
    """Three steps: offload, sync with three gathers and two collectives, offload, rollout."""
    build = TraceBuilder(ranks=ranks)
    for number in range(3):
        at = 10.0 * number
        for rank in range(ranks):
            build.span(rank, "offload", at, at + 1.0)
            build.span(rank, "sync", at + 1.0, at + 3.0)
            for part in range(3):
                build.span(rank, "sync/gather", at + 1.0 + part / 2, at + 1.4 + part / 2, depth=2)
            for part in range(2):
                begun = at + 1.1 + part
                build.collective(rank, 5 * number + part, begun, begun + 0.1)
            build.span(rank, "offload", at + 3.0, at + 3.5)
            build.span(rank, "rollout", at + 3.5, at + 8.0)
            build.collective(rank, 5 * number + 2, at + 7.0, at + 7.1)
            build.step(rank, number, at, {}, end_s=at + 8.0)
        build.span(0, "sync/gather", at - 1.0, at - 0.5)  # between steps: of none
    return RunView.of(build.build())


def test_spans_of_a_name_are_counted_and_measured_within_steps() -> None:
    assert times_per_step(view(), "sync/gather") == 3
    assert span_lengths(view(), "sync/gather") == pytest.approx([0.4] * 18)
    assert times_per_step(view(), "never") == 0


def test_collectives_are_counted_within_a_phase() -> None:
    assert collectives_per_step(view(), "sync") == 2
    assert collectives_per_step(view(), "rollout") == 1


def test_pieces_are_told_by_their_neighbours() -> None:
    assert seconds_just_before(view(), "offload", "sync") == pytest.approx(1.0)
    assert seconds_just_after(view(), "offload", "sync") == pytest.approx(0.5)
    assert seconds_just_before(view(), "offload", "train") == 0
