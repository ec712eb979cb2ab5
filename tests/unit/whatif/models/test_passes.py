from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.analysis import analyse
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif.models.passes import (
    PASS,
    PLACES,
    Passes,
    arithmetic_of,
    fit,
    measured_passes,
)
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import mid

FIXED, SLOPE, ROWS = 0.10, 0.0002, 2
MODEL = {
    "model_vocab_size": 300, "model_hidden_size": 128, "model_intermediate_size": 256,
    "model_num_hidden_layers": 2,
}  # fmt: skip
WIDTHS = (120, 200, 150, 280, 240, 180)
FEWER = {"train__micro_batch": 4 * ROWS, "train__grad_accumulation": 1}
CASES = settings(max_examples=25, deadline=None)


def _seconds(rows: int, width: float, attention: float) -> float:
    """Attention goes with the square of a sequence's width, all else with the places."""
    return FIXED + SLOPE * rows * width * (1 + attention * width)


def trained(
    rows: int, passes: int, *, dataload: float = 0.0, rollouts: int = 1, **facts: Any
) -> TraceBuilder:
    """Steps as transformers' trainers have them: passes of one width, loads, then rollouts."""
    sizes = arithmetic_of(MODEL)
    assert sizes is not None
    knobs = {"train.micro_batch": rows, "train.grad_accumulation": passes}
    build = TraceBuilder(knobs=knobs, **facts)
    times, places, now = [], [], 0.0
    for number, width in enumerate(WIDTHS * 2):
        begin, seconds = now, _seconds(rows, width, sizes.attention_share)
        build.span(0, "dataload", now, now + passes * dataload)
        now += passes * dataload
        for index in range(passes):
            generates = index < rollouts
            build.span(0, "train", now, now + seconds + generates)
            if generates:
                build.span(0, "rollout", now, now + 1, depth=2)
                build.span(0, "rollout/generate", now, now + 1, depth=3)
            now += seconds + generates
            times.append(now - seconds / 2)
            places.append(float(rows * width))
        build.step(0, number, begin, {}, end_s=now)
    build.series(PLACES, "", times, places, scope="counter", rank=0)
    return build


def _change(before: TraceBuilder, after: TraceBuilder) -> float:
    steps = [analyse(build.build()).step_s or 0.0 for build in (before, after)]
    return 100 * (steps[1] / steps[0] - 1)


def test_wider_passes_take_more_per_place_and_do_not_hide_what_is_fixed() -> None:
    line = fit(measured_passes(analyse(trained(ROWS, 4, config=MODEL).build())))
    assert line is not None
    assert line.fixed == pytest.approx(FIXED, rel=0.01)
    assert line.fixed_low <= line.fixed <= line.fixed_high
    unknown = fit(measured_passes(analyse(trained(ROWS, 4).build())))
    assert unknown is not None
    assert unknown.fixed < 0.97 * FIXED


@pytest.mark.parametrize("factor", [2, 4])
def test_fewer_passes_bring_what_they_would_have_measured(factor: int) -> None:
    before = trained(ROWS, 4, config=MODEL)
    after = trained(ROWS * factor, 4 // factor, config=MODEL)
    settings = {
        "train__micro_batch": ROWS * factor,
        "train__grad_accumulation": 4 // factor,
    }
    assert mid(before, **settings) == pytest.approx(_change(before, after), abs=0.2)


def test_a_loader_that_feeds_the_whole_rollout_in_each_pass_loads_less_in_fewer() -> None:
    before = trained(ROWS, 4, dataload=0.2, config=MODEL)
    after = trained(4 * ROWS, 1, dataload=0.2, config=MODEL)
    assert mid(before, **FEWER) == pytest.approx(_change(before, after), abs=0.2)


def test_where_each_pass_has_a_rollout_of_its_own_its_rows_are_loaded_once() -> None:
    alone = trained(ROWS, 4, rollouts=4, config=MODEL)
    loaded = trained(ROWS, 4, rollouts=4, dataload=0.2, config=MODEL)
    steps = [analyse(build.build()).step_s or 0.0 for build in (alone, loaded)]
    saved = [mid(build, **FEWER) * step for build, step in zip((alone, loaded), steps, strict=True)]
    assert saved[0] == pytest.approx(saved[1], rel=0.01)


@CASES
@given(
    st.lists(st.floats(500, 2000), min_size=4, max_size=8),
    st.floats(0.0, 0.01),
    st.floats(0.0, 0.5),
    st.floats(1e-6, 1e-3),
)
def test_any_passes_that_follow_the_law_are_split_as_they_were_made(
    widths: Sequence[float], attention: float, fixed: float, slope: float
) -> None:
    places = np.repeat(widths, 4)
    step = np.repeat(np.arange(len(widths)), 4)
    seconds = fixed + slope * places * (1 + attention * places)
    line = fit(Passes(seconds, places, step, attention))
    if line is None:  # of one size
        return
    assert 0 <= line.fixed_low <= line.fixed <= line.fixed_high <= line.seconds * (1 + 1e-9)
    assert line.fixed == pytest.approx(fixed, abs=1e-3 * line.seconds)
    # Half as wide: halves what goes with places, and quarters what goes with their attention.
    halved = float((fixed + slope * places / 2 * (1 + attention * places / 2)).mean())
    assert line.shares_of_narrower(0.5)[1] == pytest.approx(halved / line.seconds, abs=2e-3)
    assert line.shares_of_narrower(1.0) == pytest.approx((1, 1, 1))
    shares = [line.shares_of_narrower(share / 10)[1] for share in range(1, 11)]
    assert shares == sorted(shares)


def test_attention_is_a_part_of_the_layers() -> None:
    sizes = arithmetic_of(MODEL)
    assert sizes is not None
    layers, head = 2 * (4 * 128**2 + 3 * 128 * 256), 300 * 128
    assert sizes.layers_share(0) == pytest.approx(layers / (layers + head))
    assert sizes.layers_share(1000) == pytest.approx(
        (layers + 2 * 128 * 1000) / (layers + 2 * 128 * 1000 + head)
    )
    assert sizes.attention_share == pytest.approx(2 * 128 / (layers + head))
    for unknown in (None, 0, -1, "128"):
        assert arithmetic_of({**MODEL, "model_hidden_size": unknown}) is None


@pytest.mark.parametrize(("passes", "steps", "fits"), [
    (12, 4, True), (11, 4, False), (12, 3, True), (12, 2, False),
])  # fmt: skip
def test_a_fit_needs_12_passes_of_3_steps(passes: int, steps: int, fits: bool) -> None:
    places = np.linspace(300.0, 500.0, passes)
    line = fit(Passes(0.1 + 0.0002 * places, places, np.arange(passes) % steps))
    assert (line is not None) == fits


def test_what_a_fit_leaves_open_is_the_jackknifes_error_over_steps() -> None:
    dice = np.random.default_rng(5)
    step, places = np.repeat(np.arange(5), 4), dice.uniform(300, 500, 20)
    seconds = (0.04 + 0.0002 * places) * np.repeat(1 + 0.02 * dice.normal(size=5), 4)

    def crossing(passes_chosen: Any) -> float:
        return float(np.polyfit(places[passes_chosen], seconds[passes_chosen], 1)[1])

    every = crossing(step >= 0)
    apart = [crossing(step != number) - every for number in range(5)]
    error = np.sqrt(4 / 5 * np.square(apart).sum())
    line = fit(Passes(seconds, places, step))
    assert line is not None
    assert line.fixed == pytest.approx(every)
    # Student's t of 4 degrees of freedom, of which 95% are below.
    assert line.fixed_high - line.fixed == pytest.approx(2.1318 * error, rel=1e-3)
    assert line.fixed - line.fixed_low == pytest.approx(2.1318 * error, rel=1e-3)


def test_where_one_step_alone_says_what_places_cost_all_is_open() -> None:
    places = np.where(np.arange(16) % 4 == 0, np.arange(16) * 100.0, 0.0)
    line = fit(Passes(0.1 + 0.0002 * places, places, np.arange(16) % 4))
    assert line is not None
    assert line.fixed_low == 0.0
    assert line.fixed_high == pytest.approx(line.seconds)


def test_each_recorded_pass_has_the_places_that_are_counted_at_its_begin() -> None:
    build, now, times = TraceBuilder(), 0.0, []
    widths = [100.0 + 10 * (7 * index % 24) for index in range(24)]
    for index, width in enumerate(widths):
        if index % 4 == 0:
            begin = now
            total = sum(FIXED + SLOPE * w for w in widths[index : index + 4])
            build.step(0, index // 4, begin, {"train": total})
        build.span(0, PASS, now, now + FIXED + SLOPE * width, depth=2)
        times.append(now)
        now += FIXED + SLOPE * width
    build.series(PLACES, "", times, widths, scope="counter", rank=0)
    line = fit(measured_passes(analyse(build.build())))
    assert line is not None
    assert (line.fixed, line.slope) == pytest.approx((FIXED, SLOPE), rel=1e-6)


def test_what_is_compiled_within_a_pass_is_no_training() -> None:
    build = trained(ROWS, 4, config=MODEL)
    plain = measured_passes(analyse(build.build())).seconds
    build.span(0, "init/compile", 0.0, 0.05, depth=4)
    compiled = trained(ROWS, 4, rollouts=0, config=MODEL)
    before = measured_passes(analyse(compiled.build())).seconds
    compiled.span(0, "init/compile", 0.01, 0.06, depth=2)
    after = measured_passes(analyse(compiled.build())).seconds
    assert len(plain) == len(before) == len(after)
    assert before[0] - after[0] == pytest.approx(0.05)
    assert after[1:].tolist() == before[1:].tolist()


def test_a_run_whose_main_threads_have_no_rollout_loads_what_it_loads() -> None:
    build = trained(ROWS, 4, rollouts=0, dataload=0.2, config=MODEL)
    plain = mid(build, **FEWER)
    build.row(Kind.CUDA_SPAN, 0, "rollout/generate", 0.0, 0.1, depth=2)
    assert mid(build, **FEWER) == plain
