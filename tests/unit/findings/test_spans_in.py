from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView, span_counts
from grpo_doctor.trace.model import Kind
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
                start = at + 1.1 + part
                build.collective(rank, 5 * number + part, start, start + 0.1)
            build.span(rank, "offload", at + 3.0, at + 3.5)
            build.span(rank, "rollout", at + 3.5, at + 8.0)
            build.collective(rank, 5 * number + 2, at + 7.0, at + 7.1)
            build.step(rank, number, at, {}, end_s=at + 8.0)
        build.span(0, "sync/gather", at - 1.0, at - 0.5)  # between steps: of none
    return RunView.of(build.build())


def test_spans_of_a_name_are_counted_and_measured_within_steps() -> None:
    assert span_counts.times_per_step(view(), "sync/gather") == 3
    assert span_counts.span_lengths(view(), "sync/gather") == pytest.approx([0.4] * 18)
    assert span_counts.times_per_step(view(), "never") == 0


def test_collectives_are_counted_within_a_phase() -> None:
    assert span_counts.collectives_per_step(view(), "sync") == 2
    assert span_counts.collectives_per_step(view(), "rollout") == 1


def test_pieces_are_told_by_their_neighbours() -> None:
    assert span_counts.seconds_beside(view(), "offload", before="sync") == pytest.approx(1.0)
    assert span_counts.seconds_beside(view(), "offload", after="sync") == pytest.approx(0.5)
    assert span_counts.seconds_beside(view(), "offload", before="train") == 0


@pytest.mark.parametrize(
    ("mean", "longest", "share"),
    [
        ([50.0, 50.0], [100.0, 200.0], 0.625),
        # Steps without completions say nothing of padding.
        ([50.0, 0.0], [100.0, 0.0], 0.5),
        ([50.0, 0.0], [100.0, 100.0], 0.5),
        ([50.0, 50.0], [100.0, 0.0], 0.5),
        ([100.0, 100.0], [100.0, 100.0], 0.0),
        ([0.0, 0.0], [100.0, 100.0], None),
        ([50.0, 50.0], None, None),
        (None, [100.0, 100.0], None),
    ],
)
def test_padding_is_guessed_from_the_lengths_of_steps_that_had_completions(
    mean: list[float] | None, longest: list[float] | None, share: float | None
) -> None:
    build = TraceBuilder()
    metrics = {"completions/mean_length": mean, "completions/max_length": longest}
    for step in (0, 1):
        lengths = {name: values[step] for name, values in metrics.items() if values is not None}
        build.metrics(step, **lengths)
    padded = span_counts.padding(RunView.of(build.build()))
    assert (None if padded is None else padded.share) == share
    assert padded is None or not padded.counted


def test_a_step_that_never_ended_has_no_neighbours_to_tell_of() -> None:
    build = TraceBuilder().span(0, "offload", 0.0, 1.0).span(0, "sync", 1.0, 2.0)
    build.row(Kind.STEP, 0, "step", 0.0, 3.0, depth=0, open=True)
    run_view = RunView.of(build.build())
    assert span_counts.seconds_beside(run_view, "offload", before="sync") == 0
    assert span_counts.seconds_beside(run_view, "sync", after="offload") == 0
