"""Steps taken together where there are many, with the means of each phase."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document.views import steps as module
from grpo_doctor.document.views.steps import rank_buckets, slowest_columns, step_buckets
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def run(*seconds: float, ranks: int = 1, **saves: float) -> TraceBuilder:
    """Steps of so much training; of several ranks each trains a second longer than the last."""
    build, now = TraceBuilder(ranks=ranks), 0.0
    for number, length in enumerate(seconds):
        for rank in range(ranks):
            phases = {"train": length + rank}
            if f"s{number}" in saves:
                phases["checkpoint"] = saves[f"s{number}"]
            build.step(rank, 10 + number, now, phases)
        now += length + ranks + sum(saves.values())
    return build


def of(build: TraceBuilder) -> Analysis:
    return analyse(build.build())


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEP_BUCKETS", 2)
    monkeypatch.setattr(module, "_MOST_LANE_BUCKETS", 2)


def test_few_steps_are_buckets_of_their_own() -> None:
    buckets = step_buckets(of(run(2.0, 3.0, 4.0)))
    assert (buckets.first, buckets.last, buckets.steps) == ([10, 11, 12], [10, 11, 12], [1, 1, 1])
    assert (buckets.seconds, buckets.worst_seconds) == ([2.0, 3.0, 4.0], [2.0, 3.0, 4.0])
    assert (buckets.start_s, buckets.end_s) == ([0.0, 3.0, 7.0], [2.0, 6.0, 11.0])
    assert buckets.phase_seconds == {"train": [2.0, 3.0, 4.0]}
    assert (buckets.median_seconds, buckets.median_phase_seconds) == (3.0, {"train": 3.0})
    assert buckets.wait_seconds == {}


@pytest.mark.usefixtures("pairs")
def test_of_neighbours_the_mean_and_the_longest_are_told() -> None:
    buckets = step_buckets(of(run(2.0, 4.0, 3.0, 9.0, ranks=2)))
    assert (buckets.first, buckets.last, buckets.steps) == ([10, 12], [11, 13], [2, 2])
    assert (buckets.seconds, buckets.worst_seconds) == ([3.5, 6.5], [4.5, 9.5])
    assert (buckets.worst_step, buckets.worst_rank) == ([11, 13], [1, 1])
    assert (buckets.start_s, buckets.end_s) == ([0.0, 10.0], [9.0, 25.0])
    assert (buckets.used, buckets.kind) == ([True, True], ["steady", "steady"])


@pytest.mark.usefixtures("pairs")
def test_a_bucket_with_a_checkpoint_is_one_of_checkpoints() -> None:
    buckets = step_buckets(of(run(*[3.0] * 6, s1=2.0)))
    assert buckets.kind == ["checkpoint", "steady"]
    assert buckets.phase_seconds["checkpoint"] == [pytest.approx(2 / 3, abs=1e-6), 0.0]
    # The median step has no checkpoint, and its phases are those of steady steps.
    assert (buckets.median_seconds, buckets.median_phase_seconds) == (3.0, {"train": 3.0})


@pytest.mark.usefixtures("pairs")
def test_steps_that_are_in_no_mean_are_in_no_bucket_with_others() -> None:
    buckets = step_buckets(of(run(30.0, 3.0, 3.0, 3.0)))
    assert (buckets.first, buckets.last) == ([10, 11, 12], [10, 11, 13])
    assert (buckets.used, buckets.kind) == ([False, True, True], ["warmup", "steady", "steady"])


def test_a_phase_that_takes_no_time_and_a_step_that_never_ended_are_told_apart() -> None:
    build = run(3.0, 3.0, s0=0.0)
    build.row(Kind.STEP, 0, "step", 20.0, 25.0, depth=0, value=12, open=True)
    buckets = step_buckets(of(build))
    assert buckets.phase_seconds == {"train": [3.0, 3.0, None]}
    assert (buckets.seconds[-1], buckets.worst_rank[-1], buckets.kind[-1]) == (None, None, "open")
    assert buckets.median_phase_seconds == {"train": 3.0}


def test_where_no_step_ended_there_is_no_median() -> None:
    build = TraceBuilder().row(Kind.STEP, 0, "step", 0.0, 5.0, depth=0, value=3, open=True)
    buckets = step_buckets(of(build))
    assert (buckets.first, buckets.kind) == ([3], ["open"])
    assert (buckets.median_seconds, buckets.median_phase_seconds) == (None, {})
    assert (buckets.worst_rank, buckets.phase_seconds) == ([None], {})


def test_without_steps_there_are_no_buckets() -> None:
    assert step_buckets(of(TraceBuilder())).first == []
    assert rank_buckets(of(TraceBuilder())).ranks == []


@pytest.mark.usefixtures("pairs")
def test_lanes_have_each_rank_by_itself() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(4):
        at = 10.0 * number
        for rank in (0, 1):
            build.span(rank, "train", at, at + 6).step(rank, number, at, {}, end_s=at + 6)
            build.collective(rank, number, at + 2 + 2 * rank + number / 2, at + 6)
    lanes = rank_buckets(of(build))
    assert (lanes.ranks, lanes.first, lanes.steps) == ([0, 1], [0, 2], [2, 2])
    assert lanes.phase_seconds == {"train": [[6.0, 6.0], [6.0, 6.0]]}
    assert lanes.wait_seconds == {"train": [[2.0, 2.0], [0.0, 0.0]]}


def test_the_more_ranks_the_fewer_buckets_and_of_very_many_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analysis = of(run(*[3.0] * 8, ranks=4))
    monkeypatch.setattr(module, "MAX_CELLS", 16)
    assert rank_buckets(analysis).steps == [2, 2, 2, 2]
    monkeypatch.setattr(module, "MAX_LANES", 2)
    lanes = rank_buckets(analysis)
    assert (lanes.ranks, lanes.steps) == ([1, 3], [1] * 8)


def test_the_slowest_rank_of_a_step_is_that_with_the_most_work() -> None:
    assert slowest_columns(of(run(3.0, 3.0, ranks=3))).tolist() == [2, 2]
    open_step = TraceBuilder().row(Kind.STEP, 0, "step", 0.0, 5.0, depth=0, value=3, open=True)
    assert slowest_columns(of(open_step)).tolist() == [-1]
    first = TraceBuilder(ranks=2)
    for rank in (0, 1):
        first.step(rank, 0, 0.0, {"train": 5.0 - rank})
    assert slowest_columns(of(first)).tolist() == [0]
    assert step_buckets(of(first)).worst_rank == [0]
