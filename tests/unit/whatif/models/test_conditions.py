"""What an answer depends on besides settings: counts, memory, samples, batches, the model."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import Prediction
from tests.build import TraceBuilder
from tests.unit.whatif.models import runs


@pytest.mark.parametrize(("settings", "after", "lacking"), [
    ({"train.micro_batch": 2}, {"train__micro_batch": 4}, "number"),
    ({"train.grad_accumulation": 2}, {"train__grad_accumulation": 4}, "size"),
    ({}, {"train__micro_batch": 4, "train__grad_accumulation": 2}, "size"),
    (runs.BATCHES, {"train__micro_batch": 0}, "size"),
    (runs.BATCHES, {"train__micro_batch": 4, "train__grad_accumulation": 0}, "number"),
])  # fmt: skip
def test_a_batch_of_which_a_part_is_unknown_or_none_is_not_guessed(
    settings: dict[str, Any], after: dict[str, Any], lacking: str
) -> None:
    build = runs.run({"train": 8.0}, settings, framework="homemade")
    assert f"the {lacking} of the micro-batches was not recorded" in runs.reason(build, **after)


@pytest.mark.parametrize(("used_gib", "fits"), [(72.0, True), (72.5, False)])
def test_gpus_may_be_90_percent_full_as_they_are(used_gib: float, fits: bool) -> None:
    build = runs.run({"train": 8.0}, runs.RECOMPUTED)
    build.gpu("GPU-0", memory_gib=80.0)
    used = [used_gib * 2**30] * 2
    build.series("gpu.memory_used", "bytes", [0, 60], used, scope="gpu", gpu="GPU-0")
    after = {"train__gradient_checkpointing": False}
    if fits:
        assert runs.mid(build, **after) == -25
    else:
        assert "91% full" in runs.reason(build, **after)


def test_a_limit_as_long_as_the_longest_completion_is_no_change() -> None:
    build = runs.run({"rollout": 4.0}, {runs.LONGEST: 200}, metrics=runs.METRICS)
    prediction = runs.what_if(build, rollout__max_completion_length=100)
    assert isinstance(prediction, Prediction)
    assert "instead of" not in prediction.effect.assumes


@pytest.mark.parametrize(
    ("order", "change"),
    # Two processes: of those in order, the first and the third share one.
    [("a.py:second", -20.0), (["a.py:second"], -20.0), (None, -10.0), ([], -10.0)],
)
def test_reward_functions_come_in_the_order_of_their_setting(order: Any, change: float) -> None:
    seconds = {"first": 3.0, "second": 1.0, "third": 1.0}
    build = runs.run(
        {**{f"reward/{name}": s for name, s in seconds.items()}, "train": 5.0},
        {runs.WORKERS: 1},
        {f"reward/{name}_s": s for name, s in seconds.items()},
        config={"reward_funcs": order},
    )
    assert runs.mid(build, reward__num_workers=2) == change


SAMPLES = {"rank.cpu": ("%", 160.0), "rank.processors": ("", 2.0)}


@pytest.mark.parametrize(("names", "change"), [
    (("rank.cpu", "rank.processors"), -20.0), (("rank.cpu",), -40.0), (("rank.processors",), -40.0),
    ((), -40.0),
])  # fmt: skip
def test_what_a_host_computes_bounds_a_step_where_both_it_and_the_cores_are_known(
    names: tuple[str, ...], change: float
) -> None:
    build = runs.run(runs.IN_TRAINER, {"dataload.num_workers": 0})
    for name in names:
        unit, value = SAMPLES[name]
        build.series(name, unit, [0, 100], [value] * 2, scope="rank", rank=0)
    assert runs.mid(build, dataload__num_workers=4) == pytest.approx(change)


def batches(*seconds: float) -> TraceBuilder:
    """Steps of 8 s of work and 2 s of waiting for what one loader process has read."""
    build = runs.run({"dataload": 2.0, "train": 8.0}, {"dataload.num_workers": 1})
    times = [20.0 * number + 0.01 for number in range(len(seconds))]
    build.series("dataload/read_s", "", times, list(seconds), scope="counter", rank=0)
    return build


def test_batches_ahead_shorten_what_is_waited_for() -> None:
    # 60 s of loading in 48 s of work: 12 s are waited for, whatever is ready. Of two ahead the last
    # is begun when the fourth is taken, 16 s before it is wanted: 34 s are waited for.
    change = runs.mid(batches(2, 2, 2, 2, 2, 50), dataload__prefetch_factor=8)
    assert change == pytest.approx(-20 * (1 - 12 / 34))


def test_five_batches_say_how_uneven_they_are_and_four_do_not() -> None:
    assert runs.mid(batches(2, 2, 2, 2, 26), dataload__prefetch_factor=8) < 0
    unknown = runs.reason(batches(2, 2, 2, 26), dataload__prefetch_factor=8)
    assert "each batch was not recorded" in unknown


def test_gathers_of_each_step_are_its_parts_where_no_setting_says() -> None:
    build = TraceBuilder()
    for number in range(runs.STEPS):
        at = 20.0 * number
        build.step(0, number, at, {"sync": 4.0, "train": 6.0})
        for part in range(4):
            build.span(0, "sync/gather", at + part, at + part + 0.5, depth=2)
        build.row(Kind.CUDA_SPAN, 0, "sync/gather", at, at + 0.5, depth=2, value=500.0)
    # Of 2 s in gathers, one part instead of four takes between a quarter and all.
    answer = runs.what_if(build, sync__move_model_batches=1)
    assert isinstance(answer, Prediction)
    assert "1 instead of 4 parts" in answer.effect.assumes
    assert answer.mid == pytest.approx(-100 * 2.0 * (1 - 5 / 8) / 10)


def test_layers_without_logits_are_a_part_of_a_forward_pass() -> None:
    config = {
        "model_vocab_size": 1000, "model_hidden_size": 10, "model_intermediate_size": 20,
        "model_num_hidden_layers": 10,
    }  # fmt: skip
    settings = {"train.gradient_checkpointing": True, "train.type": "full"}
    build = runs.run({"logprob/old": 2.0, "train": 8.0}, settings, config=config)
    # 10 layers of 4 x 100 + 3 x 200 products beside 1000 x 10 of the logits: half of 2 s.
    assert runs.mid(build, train__gradient_checkpointing=False) == pytest.approx(-10)
