from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grpo_doctor import whatif
from grpo_doctor.analysis import analyse
from grpo_doctor.whatif.prediction import (
    REMOVAL_ERROR,
    RUN_ERROR,
    Effect,
    Spread,
    joint_error,
    predict_on,
    replay_error,
)
from grpo_doctor.whatif.step_model import by_phase
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import STEPS, run


def model_of(build: TraceBuilder) -> whatif.StepModel:
    return whatif.build_model(analyse(build.build()))


def synchronised(steps: int = 5, slow: float = 3.0) -> TraceBuilder:
    """Two ranks meet after the rollout and after training; rank 1 takes `slow` s in rollouts."""
    build = TraceBuilder(ranks=2)
    for number in range(steps):
        at = 10.0 * number
        for rank, rollout in enumerate((1.0, slow)):
            build.span(rank, "rollout", at, at + slow)
            build.collective(rank, 2 * number, at + rollout, at + slow)
            build.span(rank, "train", at + slow, at + slow + 2)
            build.collective(rank, 2 * number + 1, at + slow + 1.9, at + slow + 2)
            build.step(rank, number, at, {}, end_s=at + slow + 2)
    return build


def test_the_slow_rank_at_the_others_pace_takes_the_wait_away() -> None:
    model = model_of(synchronised())
    after = whatif.replay(model, (whatif.Edit(("rollout",), 1 / 3, ranks=(1,)),))
    assert after == pytest.approx(np.full(5, 3.0))


def test_barriers_within_a_step_matter() -> None:
    # Each rank is slow once: removing one phase on one rank leaves the other's lateness.
    build = TraceBuilder(ranks=2)
    for number in range(4):
        at = 10.0 * number
        for rank in (0, 1):
            long_first = rank == 0
            build.span(rank, "reward", at, at + 4)
            build.collective(rank, 2 * number, at + (4 if long_first else 1), at + 4)
            build.span(rank, "train", at + 4, at + 8)
            build.collective(rank, 2 * number + 1, at + (5 if long_first else 8), at + 8)
            build.step(rank, number, at, {}, end_s=at + 8)
    model = model_of(build)
    assert whatif.replay(model) == pytest.approx(np.full(4, 8.0))
    assert whatif.replay(model, (whatif.Edit(("reward",), 0.0, ranks=(0,)),)) == pytest.approx(
        np.full(4, 5.0)
    )


def test_one_rank_without_collectives() -> None:
    build = TraceBuilder()
    for number in range(4):
        build.step(0, number, 10.0 * number, {"offload": 1.0 + number % 2, "train": 5.0})
    model = model_of(build)
    prediction = whatif.predict(model, Effect((whatif.without("offload"),)), "without its offload")
    assert isinstance(prediction, whatif.Prediction)
    assert prediction.mid == pytest.approx(100 * (5 / 6.5 - 1))
    assert prediction.low <= prediction.mid <= prediction.high <= 0
    # Steps without it are all alike, so the errors of model and run are all that is left.
    width = float(np.hypot(REMOVAL_ERROR * prediction.mid, 100 * RUN_ERROR))
    assert prediction.low == pytest.approx(prediction.mid - width)
    assert "4 steps" in prediction.basis


def test_a_cautious_edit_sets_the_high_end() -> None:
    build = TraceBuilder()
    for number in range(4):
        build.step(0, number, 10.0 * number, {"dataload": 2.0, "train": 2.0})
    cautious = (whatif.Edit(("dataload",), 0.5),)
    effect = Effect((whatif.without("dataload"),), at_least=cautious)
    prediction = whatif.predict(model_of(build), effect, "so")
    assert isinstance(prediction, whatif.Prediction)
    assert prediction.mid == pytest.approx(-50)
    assert prediction.low < -50
    assert -25 < prediction.high < -15


def test_too_few_steps_give_no_prediction() -> None:
    build = TraceBuilder()
    for number in range(2):
        build.step(0, number, 10.0 * number, {"train": 2.0})
    prediction = whatif.predict(model_of(build), Effect((whatif.without("train"),)), "so")
    assert isinstance(prediction, whatif.Withheld)
    assert "3 steps" in prediction.reason


def test_a_run_that_the_model_does_not_describe_gives_no_prediction() -> None:
    # Waits in a group of two of four ranks: the model knows no barrier there and loses the time.
    build = TraceBuilder(ranks=4)
    for number in range(4):
        at = 20.0 * number
        for rank in range(4):
            build.step(rank, number, at, {"train": 10.0})
            early = rank % 2 == 0 if number % 2 else rank % 2 == 1
            group = f"pair{rank // 2}"
            build.collective(rank, 2 * number, at + (1 if early else 5), at + 5, group=group)
            late = at + (10 if early else 6)
            build.collective(rank, 2 * number + 1, late, at + 10, group=group)
    prediction = whatif.predict(model_of(build), Effect((whatif.without("train"),)), "so")
    assert isinstance(prediction, whatif.Withheld)
    assert "off its measured step time" in prediction.reason


def test_a_model_without_steps_replays_to_nothing() -> None:
    model = model_of(TraceBuilder(ranks=2))
    assert not len(whatif.replay(model))
    assert replay_error(model, whatif.replay(model)) == float("inf")
    assert not len(whatif.replay(model, (whatif.Add("train", 1.0),)))


def test_a_replay_of_steps_without_any_length_is_infinitely_far_off() -> None:
    model = offloaded((8.0,) * 4)
    assert replay_error(replace(model, measured_s=np.zeros(4)), whatif.replay(model)) == float(
        "inf"
    )


@pytest.mark.parametrize(("replayed_s", "predicted"), [(21.0, True), (21.1, False)])
def test_a_replay_may_be_a_twentieth_off_and_no_more(replayed_s: float, predicted: bool) -> None:
    model = replace(offloaded((replayed_s - 2,) * 4), measured_s=np.full(4, 20.0))
    assert isinstance(whatif.ground(model), whatif.Ground) is predicted


def offloaded(rollouts: tuple[float, ...]) -> whatif.StepModel:
    build = TraceBuilder()
    for number, rollout in enumerate(rollouts):
        build.step(0, number, 100.0 * number, {"offload": 2.0, "rollout": rollout})
    return model_of(build)


def test_steps_that_are_all_alike_leave_the_errors_of_model_and_run() -> None:
    effect = Effect((whatif.without("offload"),), error=0.1)
    prediction = whatif.predict(offloaded((8.0,) * 8), effect, "so")
    assert isinstance(prediction, whatif.Prediction)
    width = float(np.hypot(0.1 * 20, 100 * RUN_ERROR))
    assert (prediction.low, prediction.mid, prediction.high) == pytest.approx(
        (-20 - width, -20, -20 + width)
    )


def test_steps_that_differ_and_fewer_of_them_widen_the_interval() -> None:
    def width(*rollouts: float) -> float:
        effect = Effect((whatif.without("offload"),), error=0.1)
        prediction = whatif.predict(offloaded(rollouts), effect, "so")
        assert isinstance(prediction, whatif.Prediction)
        return prediction.mid - prediction.low

    assert width(*[8.0] * 8) < width(*[7.0, 9.0] * 16) < width(*[7.0, 9.0] * 4)
    assert width(*[7.0, 9.0] * 4) < width(*[5.0, 11.0] * 4)


def without_two() -> tuple[whatif.Ground, whatif.Edit, whatif.Edit]:
    """Steps of 2 s of offload, 1 s of reward and 7 s of training."""
    build = TraceBuilder()
    for number in range(4):
        phases = {"offload": 2.0, "reward": 1.0, "train": 7.0}
        build.step(0, number, 100.0 * number, phases)
    base = whatif.ground(model_of(build))
    assert isinstance(base, whatif.Ground)
    return base, whatif.without("offload"), whatif.without("reward")


def test_errors_of_several_changes_weigh_as_much_as_the_changes() -> None:
    base, first, second = without_two()
    joint = joint_error(base, [((first,), 0.1), ((second,), 0.4)])
    assert joint == pytest.approx(np.hypot(0.1 * 2, 0.4 * 1) / 3)
    slower = whatif.Edit(("reward",), 2.0)
    assert joint_error(base, [((first,), 0.1), ((slower,), 0.4)]) == pytest.approx(joint)
    nothing = whatif.Edit(("reward",), 1.0)
    assert joint_error(base, [((nothing,), 0.1), ((nothing,), 0.3)]) == 0.3
    assert joint_error(base, []) == 0.0


def test_ends_of_several_changes_are_replayed_together() -> None:
    base, first, second = without_two()
    half, bold = whatif.Edit(("offload",), 0.5), whatif.Edit(("reward",), 0.5)
    sure = predict_on(base, Effect((first,), error=0.0), "so")
    shy = predict_on(base, Effect((first,), at_least=(half,), error=0.0), "so")
    of_second = Effect((second,), at_least=(bold,), at_most=(second,), error=0.0)
    second_prediction = predict_on(base, of_second, "so")
    assert whatif.together(base, (sure,), "so").effect.at_least is None
    joint = whatif.together(base, (shy, second_prediction), "so")
    assert (joint.effect.at_least, joint.effect.at_most) == ((half, bold), (first, second))
    pair = whatif.together(base, (sure, second_prediction), "so")
    assert pair.effect.at_least == (first, bold)
    # 3 s are taken away, or 1.5 s where both are at their most cautious.
    assert (joint.mid, joint.high) == pytest.approx((-30, -15 + 100 * RUN_ERROR))


def test_a_removal_that_a_fit_can_not_tell_from_none_ends_at_no_change() -> None:
    base, *_ = without_two()
    same, more, less = (whatif.Edit(("offload",), factor) for factor in (1.0, 1.5, 0.5))
    fitted = Spread(middle=(same,), shy=(more,), bold=(less,))
    prediction = predict_on(base, Effect((same,), error=0.0, spreads=(fitted,)), "so")
    assert (prediction.mid, prediction.high) == (0, 0)
    assert prediction.low == pytest.approx(-np.hypot(10, 100 * RUN_ERROR))


def two_ranks() -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        for rank in (0, 1):
            phases = {"rollout": 4.0, "train": 6.0} if rank else {"train": 6.0}
            build.step(rank, number, 20.0 * number, phases)
            build.collective(rank, number, 20.0 * number + 6 + 4 * rank, 20.0 * number + 10)
    return build


def test_work_is_added_to_the_ranks_that_are_named_and_to_those_alone() -> None:
    model = whatif.build_model(analyse(two_ranks().build()))
    before = by_phase(model, ())
    for ranks, shares in (((1,), (0, 1)), ((0,), (1, 0)), (None, (1, 1))):
        after = by_phase(model, (whatif.Add("train", 1.0, ranks=ranks),))
        assert after["train"][1] - before["train"][1] == pytest.approx(sum(shares) / 2)
    # Where nothing is to grow, the step begins with it.
    assert whatif.replay(model, (whatif.Add("reward", 2.0),)).mean() == pytest.approx(12)
    assert whatif.replay(model, (whatif.Add("reward", -2.0),)).mean() == pytest.approx(10)


def test_a_phase_that_goes_is_told_with_what_it_took() -> None:
    model = whatif.build_model(analyse(run({"rollout": 4.0, "train": 6.0}).build()))
    seconds = by_phase(model, (whatif.Edit(("rollout",), 0.0),))
    assert seconds["rollout"] == pytest.approx((4.0, 0.0))
    assert "reward" not in seconds
