from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif import Prediction
from grpo_doctor.whatif.models.batch import PASS, PLACES, Passes, fit, measured_passes
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import mid, reason, run, what_if

FIXED, SLOPE = 0.10, 0.001
SETTINGS = {"train.micro_batch": 2, "train.grad_accumulation": 4}


def passes(widths: tuple[int, ...], *, tokens: float = 0.5) -> TraceBuilder:
    """Steps of 4 passes of one width each, that take 0.1 s and 1 ms per place."""
    build = TraceBuilder(knobs=SETTINGS)
    times, places, totals = [], [], []
    for number, width in enumerate(widths):
        now = 10.0 * number
        seconds = FIXED + SLOPE * width
        build.span(0, "train", now, now + 4 * seconds)
        for index in range(4):
            at = now + index * seconds
            build.span(0, PASS, at, at + seconds, depth=2)
            times.append(at)
            places.append(float(width))
        totals.append(4 * width * tokens)
        build.step(0, number, now, {}, end_s=now + 4 * seconds)
    build.series(PLACES, "", times, places, scope="counter", rank=0)
    steps = [10.0 * number + 0.05 for number in range(len(widths))]
    build.series("train/tokens", "", steps, totals, scope="counter", rank=0)
    return build


WIDTHS = (80, 100, 120, 90, 110, 100)


def test_the_passes_own_cost_and_that_of_their_places_are_told_apart() -> None:
    line = fit(measured_passes(analyse(passes(WIDTHS).build())))
    assert line is not None
    assert (line.fixed, line.slope) == pytest.approx((FIXED, SLOPE), rel=0.02)


def test_larger_passes_pay_the_fixed_part_less_often() -> None:
    patient = passes(WIDTHS)
    expected = 100 * ((0.05 + 0.1) / 0.2 - 1)
    found = what_if(patient, train__micro_batch=4, train__grad_accumulation=2)
    assert isinstance(found, Prediction)
    assert found.mid == pytest.approx(expected, abs=1)
    assert "100 ms" in found.grounds


def micro_batches_that_generate(widths: tuple[int, ...]) -> TraceBuilder:
    """As transformers' trainers are recorded: the first of four generates for all."""
    build = TraceBuilder(knobs={"train.micro_batch": 2, "train.grad_accumulation": 4})
    times, places = [], []
    for number, width in enumerate(widths):
        now = 10.0 * number
        seconds = FIXED + SLOPE * width
        for index in range(4):
            end = now + seconds + (index == 0)
            build.span(0, "train", now, end)
            if index == 0:
                build.span(0, "rollout", now, now + 1, depth=2)
            build.span(0, "train/loss", end - seconds, end - seconds / 2, depth=2)
            times.append(end - seconds)
            places.append(float(width))
            now = end
        build.step(0, number, 10.0 * number, {}, end_s=now)
    build.series(PLACES, "", times, places, scope="counter", rank=0)
    return build


def test_what_is_generated_within_a_pass_does_not_count_as_its_own_time() -> None:
    hooked = micro_batches_that_generate(WIDTHS)
    line = fit(measured_passes(analyse(hooked.build())))
    assert line is not None
    assert (line.fixed, line.slope) == pytest.approx((FIXED, SLOPE), rel=0.02)
    steps = 4 * 0.2 + 1
    shorter = 100 * (4 * (0.05 + 0.1) + 1 - steps) / steps
    expected = pytest.approx(shorter, abs=1)
    assert mid(hooked, train__micro_batch=4, train__grad_accumulation=2) == expected


def test_another_batch_is_another_question() -> None:
    assert "another batch" in reason(passes(WIDTHS), train__micro_batch=4)


def test_passes_of_one_size_do_not_say_what_one_costs() -> None:
    patient = passes((100,) * 6)
    after = {"train__micro_batch": 4, "train__grad_accumulation": 2}
    assert "of one size" in reason(patient, **after)


def test_far_larger_passes_are_not_guessed() -> None:
    patient = passes(WIDTHS)
    patient.knobs = {"train.micro_batch": 1, "train.grad_accumulation": 16}
    after = {"train__micro_batch": 16, "train__grad_accumulation": 1}
    assert "too far from those measured" in reason(patient, **after)


def test_beside_a_gpu_a_passes_span_is_not_its_time() -> None:
    patient = passes(WIDTHS)
    patient.gpu("GPU-0")
    after = {"train__micro_batch": 4, "train__grad_accumulation": 2}
    assert "kernels run beside" in reason(patient, **after)


def test_padding_is_left_out_once() -> None:
    alone = mid(passes(WIDTHS), train__padding_free=True)
    both = mid(passes(WIDTHS), train__padding_free=True, train__group_by_length=True)
    assert both == alone


def test_without_padding_only_tokens_take_time() -> None:
    # Half of the places are padding: 0.1 s + 50 instead of 100 places of 1 ms.
    assert mid(passes(WIDTHS), train__padding_free=True) == pytest.approx(-25, abs=1)


def test_sorted_by_length_four_passes_keep_a_quarter_of_the_padding() -> None:
    assert mid(passes(WIDTHS), train__group_by_length=True) == pytest.approx(-18.75, abs=1)


def test_padding_that_was_not_counted_is_unknown() -> None:
    patient = run({"train": 8.0}, SETTINGS)
    assert "padding was not recorded" in reason(patient, train__padding_free=True)


def test_a_late_pass_does_not_bend_the_line() -> None:
    found = measured_passes(analyse(passes(WIDTHS * 3).build()))
    found.seconds[5] *= 10
    line = fit(found)
    assert line is not None
    assert line.fixed == pytest.approx(FIXED, rel=0.1)
    assert np.isfinite(line.slope)


def test_passes_of_one_step_that_are_slow_together_do_not_make_the_fit_surer() -> None:
    """16 passes of one width in each of 8 steps, and a host that is busy for whole steps."""
    random = np.random.default_rng(3)
    outside = 0
    for _ in range(100):
        step = np.repeat(np.arange(8), 16)
        places = np.repeat(random.integers(300, 500, 8), 16).astype(float)
        busy_s = np.repeat(random.normal(0, 0.02, 8), 16)
        seconds = 0.1 + 0.0002 * places + busy_s
        line = fit(Passes(seconds, places, step))
        assert line is not None
        outside += not line.fixed_low <= 0.1 <= line.fixed_high
    assert outside < 60  # one standard error leaves out a third, of so few steps some more


def test_two_steps_are_too_few_to_fit() -> None:
    step = np.repeat([0, 1], 16)
    places = np.where(step == 0, 300.0, 500.0)
    assert fit(Passes(0.1 + 0.0002 * places, places, step)) is None
