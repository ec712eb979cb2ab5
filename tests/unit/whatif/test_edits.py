from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.phases import UNATTRIBUTED
from grpo_doctor.whatif import (
    Add,
    AsOthers,
    Edit,
    Hide,
    Overlap,
    StepModel,
    build_model,
    every,
    replay,
    without,
)
from grpo_doctor.whatif.step_model import WAIT, by_phase, only_removes
from tests.build import TraceBuilder

STEPS = 4


def one_rank(**phases: float) -> StepModel:
    """Steps of one rank; `sync__gather` is a span in `sync`."""
    build = TraceBuilder()
    for number in range(STEPS):
        at, now = 100.0 * number, 100.0 * number
        for name, seconds in phases.items():
            phase, _, inner = name.partition("__")
            build.span(0, phase, now, now + seconds + (1.0 if inner else 0.0))
            if inner:
                build.span(0, f"{phase}/{inner}", now, now + seconds, depth=2)
                now += 1.0
            now += seconds
        build.step(0, number, at, {}, end_s=now)
    return build_model(analyse(build.build()))


def two_ranks(first: float, second: float) -> StepModel:
    """Both meet after their rewards, and train for 2 s."""
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        at, met = 100.0 * number, 100.0 * number + max(first, second)
        for rank, reward in enumerate((first, second)):
            build.span(rank, "reward", at, met)
            build.collective(rank, number, at + reward, met)
            build.span(rank, "train", met, met + 2)
            build.step(rank, number, at, {}, end_s=met + 2)
    return build_model(analyse(build.build()))


def lengths(model: StepModel, *changes: object) -> list[float]:
    return [round(x, 6) for x in replay(model, changes).tolist()]  # type: ignore[arg-type]


def test_a_span_is_edited_by_itself_and_with_its_phase() -> None:
    model = one_rank(sync__gather=4.0, train=5.0)
    assert lengths(model) == [10.0] * STEPS
    assert lengths(model, without("sync/gather")) == [6.0] * STEPS
    assert lengths(model, without("sync")) == [5.0] * STEPS
    assert lengths(model, without("sync/gath")) == [10.0] * STEPS


def test_seconds_are_added_to_what_is_there_or_before_the_step() -> None:
    model = one_rank(train=5.0)
    assert lengths(model, Add("train", 1.5)) == [6.5] * STEPS
    assert lengths(model, Add("logprob", 1.5)) == [6.5] * STEPS
    assert lengths(model, Add("train", -9.0)) == [0.0] * STEPS


def test_added_seconds_on_one_rank_are_waited_for_by_the_other() -> None:
    model = two_ranks(1.0, 1.0)
    assert lengths(model, Add("reward", 2.0, ranks=(1,))) == [5.0] * STEPS


@pytest.mark.parametrize(("ranks", "length"), [((0,), 5.0), ((1,), 7.0), (None, 7.0)])
def test_seconds_are_added_to_the_named_ranks_alone(
    ranks: tuple[int, ...] | None, length: float
) -> None:
    model = two_ranks(1.0, 3.0)
    assert lengths(model, Add("reward", 2.0, ranks=ranks)) == [length] * STEPS


def test_a_rank_is_brought_down_to_the_median_of_the_others() -> None:
    model = two_ranks(1.0, 4.0)
    assert lengths(model, AsOthers(("reward",), 1)) == [3.0] * STEPS
    assert lengths(model, AsOthers(("reward",), 0)) == [6.0] * STEPS
    assert lengths(model, AsOthers(("reward",), 7)) == [6.0] * STEPS


def test_once_every_eighth_step_instead_of_every_second() -> None:
    model = one_rank(train=5.0, checkpoint=4.0)
    assert lengths(model, every(("checkpoint",), 2, 8)) == [6.0] * STEPS


def test_loading_is_hidden_behind_the_rest_of_the_step() -> None:
    model = one_rank(dataload=6.0, train=5.0)
    assert lengths(model, Hide("dataload", 6.0, 1)) == [6.0] * STEPS
    assert lengths(model, Hide("dataload", 6.0, 2)) == [5.0] * STEPS


def test_the_rest_that_hides_loading_is_what_other_changes_leave() -> None:
    model = one_rank(dataload=6.0, offload=3.0, train=2.0)
    hidden, alone = Hide("dataload", 6.0, 2), without("offload")
    assert lengths(model, hidden) == [5.0] * STEPS
    assert lengths(model, hidden, alone) == [3.0] * STEPS  # not 2: 6 s / 2 are seen again
    assert lengths(model, alone, hidden) == lengths(model, hidden, alone)


def test_a_step_is_not_shorter_than_what_its_host_computes() -> None:
    model = one_rank(dataload=6.0, train=5.0)
    busy = Hide("dataload", 6.0, 4, computed_s=8.0, cores=2.0)
    assert lengths(model, busy) == [8.0] * STEPS
    assert lengths(model, busy, Edit(("train",), 0.6)) == [7.0] * STEPS  # 2 s less, on 2 cores


def test_of_two_sides_that_overlap_the_longer_one_counts() -> None:
    model = one_rank(rollout=6.0, train=4.0, optimizer=1.0)
    assert lengths(model, Overlap(("rollout",), ("train",))) == [7.0] * STEPS
    assert lengths(model, Overlap(("rollout",), ("train", "optimizer"))) == [6.0] * STEPS


def test_phases_before_and_after_and_what_is_waited_for() -> None:
    model = two_ranks(1.0, 4.0)
    seconds = by_phase(model, (AsOthers(("reward",), 1),))
    assert seconds["reward"] == pytest.approx((2.5, 1.0))
    assert seconds["train"] == pytest.approx((2.0, 2.0))
    assert seconds[WAIT] == pytest.approx((1.5, 0.0))


def test_what_can_not_make_a_step_longer() -> None:
    assert only_removes((without("a"), Edit(("b",), 1.0), Add("c", -1.0), Hide("d", 1.0, 1)))
    assert only_removes((Add("c", 0.0),))
    assert not only_removes((Edit(("b",), 1.1),))
    assert not only_removes((Add("c", 0.1),))


def test_a_long_run_is_sampled_and_its_mean_stays() -> None:
    from grpo_doctor.whatif import step_model as module

    build = TraceBuilder()
    for number in range(200):
        build.step(0, number, 10.0 * number, {"rollout": 2.0 + 0.1 * (number % 7), "train": 3.0})
    analysis = analyse(build.build())
    model_of_all = build_model(analysis)
    original = module.MOST_ROWS
    try:
        module.MOST_ROWS = 60
        part = build_model(analysis)
    finally:
        module.MOST_ROWS = original
    assert (len(model_of_all.measured_s), len(part.measured_s)) == (200, module.LEAST_STEPS)
    assert replay(part) == pytest.approx(part.measured_s)
    assert part.step_s == pytest.approx(model_of_all.step_s, rel=0.03)
    assert np.isin(part.rows, analysis.steps.used).all()


def test_a_late_end_of_one_step_and_a_late_start_of_the_next_are_not_both_waited_for() -> None:
    # Rank 0 ends each step 2 s after the barrier, rank 1 begins each with 2 s more of loading:
    # there is no barrier between, so both go on at once.
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        at = 10.0 * number
        for rank, (load, tail) in enumerate(((1.0, 3.0), (3.0, 1.0))):
            begin, met = at + 2.0 * (rank == 0), at + 5.0
            build.span(rank, "dataload", begin, begin + load)
            build.span(rank, "train", begin + load, met)
            build.collective(rank, number, met - 0.5, met)
            build.span(rank, "checkpoint", met, met + tail)
            build.step(rank, number, begin, {}, end_s=met + tail)
    model = build_model(analyse(build.build()))
    # Each rank works 3 + 1 or 1 + 3 s between two barriers and 2 s in train: 6 s of a step.
    assert replay(model)[1:-1] == pytest.approx([6.0] * (STEPS - 2))


def test_the_first_of_all_phases_is_one_like_the_others() -> None:
    model = one_rank(init=3.0, train=5.0)
    assert lengths(model, without("init")) == [5.0] * STEPS


def test_what_no_span_covers_is_work_too() -> None:
    build = TraceBuilder()
    for number in range(STEPS):
        build.step(0, number, 10.0 * number, {"train": 2.0}, end_s=10.0 * number + 5)
    model = build_model(analyse(build.build()))
    assert model.work_s(UNATTRIBUTED) == pytest.approx(3.0)
    assert lengths(model, without(UNATTRIBUTED)) == [2.0] * STEPS


def test_without_collectives_each_step_takes_as_long_as_its_own_slowest_rank() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        for rank in (0, 1):
            build.step(rank, number, 10.0 * number, {"train": 3.0 if rank == number % 2 else 1.0})
    assert lengths(build_model(analyse(build.build()))) == [3.0] * STEPS
