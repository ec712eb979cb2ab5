"""What holds of any run: drawn steps of two ranks that meet after rollouts and after training."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from grpo_doctor import whatif
from grpo_doctor.analysis import analyse
from grpo_doctor.whatif.prediction import replay_error
from tests.build import TraceBuilder

PARTS = ("dataload", "rollout", "reward", "train")
BARRIERS = ("rollout", "train")
_TENTHS = st.integers(1, 40)
STEPS = st.lists(st.tuples(*[st.tuples(*[_TENTHS] * len(PARTS))] * 2), min_size=3, max_size=6)
REMOVALS: st.SearchStrategy[whatif.Change] = st.one_of(
    st.builds(whatif.Edit, st.lists(st.sampled_from(PARTS), min_size=1, max_size=2).map(tuple),
        st.floats(0.0, 1.0), st.sampled_from([None, (0,), (1,)])),
    st.builds(whatif.AsOthers, st.sampled_from(PARTS).map(lambda part: (part,)), st.integers(0, 1)),
)  # fmt: skip
CASES = settings(max_examples=25, deadline=None)


def model_of(drawn: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> whatif.StepModel:
    """Every rank does its parts in order and waits at the barriers for the other."""
    build, now, serial = TraceBuilder(ranks=2), 0.0, 0
    for number, works in enumerate(drawn):
        begin, clocks = now, [now, now]
        for position, part in enumerate(PARTS):
            entered = [clocks[rank] + works[rank][position] / 10 for rank in (0, 1)]
            met = max(entered)
            for rank in (0, 1):
                end = met if part in BARRIERS else entered[rank]
                build.span(rank, part, clocks[rank], end)
                if part in BARRIERS:
                    build.collective(rank, serial, entered[rank], met)
                clocks[rank] = end
            serial += part in BARRIERS
        now = max(clocks)
        for rank in (0, 1):
            build.step(rank, number, begin, {}, end_s=now)
    return whatif.build_model(analyse(build.build()))


@CASES
@given(STEPS)
def test_a_replay_without_changes_is_what_was_measured(
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    model = model_of(drawn)
    assert whatif.replay(model) == pytest.approx(model.measured_s)
    assert replay_error(model, whatif.replay(model)) == pytest.approx(0, abs=1e-6)


@CASES
@given(STEPS, st.sampled_from(PARTS))
def test_a_change_by_the_factor_one_changes_nothing(
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]], part: str
) -> None:
    model = model_of(drawn)
    prediction = whatif.predict(model, whatif.Effect((whatif.Edit((part,), 1.0),)), "so")
    assume(isinstance(prediction, whatif.Prediction))  # withheld of steps that chance rules
    assert isinstance(prediction, whatif.Prediction)
    assert (prediction.low, prediction.mid, prediction.high) == (0, 0, 0)


@CASES
@given(STEPS, st.lists(REMOVALS, min_size=1, max_size=3), REMOVALS)
def test_removing_more_is_never_slower(
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]],
    some: list[whatif.Change],
    more: whatif.Change,
) -> None:
    model = model_of(drawn)
    now, less = whatif.replay(model).mean(), whatif.replay(model, some).mean()
    assert less <= now + 1e-9
    assert whatif.replay(model, (*some, *(whatif.without(part) for part in PARTS))).mean() <= 1e-9
    # `AsOthers` looks at the other rank's work, so what is removed there counts for it too.
    if isinstance(more, whatif.Edit):
        assert whatif.replay(model, (*some, more)).mean() <= less + 1e-9


@CASES
@given(STEPS, st.integers(1, 8))
def test_more_is_hidden_by_more_processes_and_what_overlaps_is_never_slower(
    drawn: list[tuple[tuple[int, ...], tuple[int, ...]]], workers: int
) -> None:
    model = model_of(drawn)
    effort = model.work_s("dataload")
    few, many = (
        whatif.replay(model, (whatif.Hide("dataload", effort, count),)).mean()
        for count in (workers, workers + 1)
    )
    assert many <= few + 1e-9
    assert (
        whatif.replay(model, (whatif.Overlap(("rollout",), ("train",)),)).mean()
        <= whatif.replay(model).mean() + 1e-9
    )


@CASES
@given(st.lists(st.tuples(*[_TENTHS] * len(PARTS)), min_size=3, max_size=6))
def test_of_one_rank_removals_add_up(drawn: list[tuple[int, ...]]) -> None:
    build, now = TraceBuilder(), 0.0
    for number, works in enumerate(drawn):
        seconds = {part: tenths / 10 for part, tenths in zip(PARTS, works, strict=True)}
        build.step(0, number, now, seconds)
        now += sum(seconds.values())
    base = whatif.ground(whatif.build_model(analyse(build.build())))
    assume(isinstance(base, whatif.Ground))
    assert isinstance(base, whatif.Ground)
    effects = {part: whatif.Effect((whatif.without(part),)) for part in PARTS[:3]}
    alone = [whatif.predict(base.model, effect, part) for part, effect in effects.items()]
    predictions = [outcome for outcome in alone if isinstance(outcome, whatif.Prediction)]
    assert len(predictions) == 3
    joint = whatif.together(base, predictions, "together")
    assert joint.mid == pytest.approx(sum(part.mid for part in predictions))
    assert joint.low <= joint.mid <= joint.high <= 0
    again = whatif.together(base, [*predictions, predictions[0]], "together")
    assert again.mid == pytest.approx(joint.mid)
    errors = [part.mid * part.effect.error for part in predictions]
    assert np.hypot.reduce(errors) == pytest.approx(joint.effect.error * abs(joint.mid))
