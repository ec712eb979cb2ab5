"""What each model says of small runs: a number where it was measured, else the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import Prediction, build_model, replay
from grpo_doctor.whatif.edits import Add, Edit
from grpo_doctor.whatif.loader_queue import waits_for_data
from grpo_doctor.whatif.models.engine import spread
from grpo_doctor.whatif.models.reward import wall_s
from grpo_doctor.whatif.prediction import replay_error
from grpo_doctor.whatif.replay import by_phase
from grpo_doctor.whatif.small_samples import student
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import STEPS, mid, reason, run, what_if

SYNCED = {"sync/gather": 2.0, "train": 8.0}
TWO_PASSES = {"rollout": 4.0, "logprob/old": 2.0, "train": 4.0}
PASSES = {"train.grad_accumulation": 2, "rollout.steps_per_generation": 4}
AT_ONCE = {**PASSES, "rollout.steps_per_generation": 2}
AWAKE = {"offload": 2.0, "train": 8.0}
IMAGES = {"dataload/pixels": 4.0e6, "dataload/images": 4.0}
TOKENS = {"dataload/image_tokens": 50.0, "train/token_places": 400.0}
IN_TRAINER = {"dataload": 4.0, "train": 6.0}
PARTS, SPG, PIXELS = "sync.move_model_batches", "rollout.steps_per_generation", "data.max_pixels"
SLEEP, WORKERS = "vllm.sleep_level", "reward.num_workers"
IN_8, ASLEEP, BETA = {PARTS: 8}, {SLEEP: 1}, {"train.beta": 0.04}
LOGPROB = {"logprob": 2.0, "train": 8.0}
JUDGED = {"reward/judge": 2.0, "train": 8.0}
Case = tuple[dict[str, float], dict[str, Any], dict[str, float], str, Any, float | str]

# Phases of a step of 10 s, settings, counters, the setting asked for: percent or a part of why not.
CASES: dict[str, Case] = {
    "half of the parts": (SYNCED, IN_8, {}, PARTS, 4, -5.0),
    "as many parts": (SYNCED, IN_8, {}, PARTS, 8, 0.0),
    "more parts": (SYNCED, IN_8, {}, PARTS, 9, "one more part"),
    "one gather a step": (SYNCED, {}, {}, PARTS, 1, 0.0),
    "parts without a sync": ({"train": 10.0}, {}, {}, PARTS, 1, "no weight sync"),
    "parts not counted": ({"sync": 2.0, "train": 8.0}, {}, {}, PARTS, 1, "how many parts"),
    "a rollout per step, no old log-probs": (TWO_PASSES, PASSES, {}, SPG, 2, 0.0),
    "another number is no multiple": (TWO_PASSES, PASSES, {}, SPG, 3, "no multiple"),
    "old log-probs would be needed": (TWO_PASSES, AT_ONCE, {}, SPG, 4, "makes necessary"),
    "half a rollout": (TWO_PASSES, {**PASSES, "rollout.steps_per_generation": 8}, {}, SPG, 4, 20.0),
    "several iterations": (
        TWO_PASSES,
        {**PASSES, "train.num_iterations": 2},
        {},
        SPG,
        2,
        "several iterations",
    ),
    "one iteration is none more": (
        TWO_PASSES,
        {**PASSES, "train.num_iterations": 1},
        {},
        SPG,
        2,
        0.0,
    ),
    "beta of a term that is there": (TWO_PASSES, BETA, {}, "train.beta", 0.1, 0.0),
    "beta of a term that is not": (
        TWO_PASSES,
        {"train.beta": 0.0},
        {},
        "train.beta",
        0.1,
        "not measured",
    ),
    "all log-probs are the reference's": (LOGPROB, BETA, {}, "train.beta", 0.0, -20.0),
    "some are the sampling policy's": (
        LOGPROB,
        {**BETA, **PASSES},
        {},
        "train.beta",
        0.0,
        "no span",
    ),
    "as many passes as per rollout": (LOGPROB, {**BETA, **AT_ONCE}, {}, "train.beta", 0.0, -20.0),
    "iterations are off-policy": (
        LOGPROB,
        {**BETA, "train.num_iterations": 2},
        {},
        "train.beta",
        0.0,
        "no span",
    ),
    "vLLM stays awake": (AWAKE, ASLEEP, {}, SLEEP, 0, -20.0),
    "vLLM sleeps deeper": (AWAKE, ASLEEP, {}, SLEEP, 2, "another sleep level"),
    "other parts are offloaded too": (
        AWAKE,
        {**ASLEEP, "offload.model": True},
        {},
        SLEEP,
        0,
        "which part",
    ),
    "others that are off": (AWAKE, {**ASLEEP, "offload.model": False}, {}, SLEEP, 0, -20.0),
    "images read by the trainer": (
        IN_TRAINER,
        {"dataload.num_workers": 0},
        {**IMAGES, "dataload/process_s": 2.0},
        PIXELS,
        500_000,
        -10.0,
    ),
    "images read by others": (
        IN_TRAINER,
        {"dataload.num_workers": 2},
        {**IMAGES, "dataload/process_s": 2.0},
        PIXELS,
        500_000,
        "not recorded",
    ),
    "images as tokens": (
        IN_TRAINER,
        {"dataload.num_workers": 2, "rollout.num_generations": 4},
        {**IMAGES, **TOKENS},
        PIXELS,
        500_000,
        -7.5,
    ),
    "images of that size": (IN_TRAINER, {}, IMAGES, PIXELS, 1_000_000, 0.0),
    "images without a size": (IN_TRAINER, {}, {}, PIXELS, 500_000, "how large"),
    "rewards that were not timed": (
        JUDGED,
        {"reward.num_workers": 1},
        {},
        WORKERS,
        2,
        "not recorded",
    ),
    "one reward function": (
        JUDGED,
        {"reward.num_workers": 1},
        {"reward/judge_s": 2.0},
        WORKERS,
        2,
        0.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_small_run_has_the_answer_that_arithmetic_gives(name: str) -> None:
    phases, settings, counters, setting, value, expected = CASES[name]
    build = run(phases, settings, counters)
    after = {setting.replace(".", "__"): value}
    if isinstance(expected, str):
        assert expected in reason(build, **after)
    else:
        assert mid(build, **after) == pytest.approx(expected)


def test_gathers_of_each_step_are_its_parts_where_no_setting_says() -> None:
    build = TraceBuilder()
    for number in range(STEPS):
        at = 20.0 * number
        build.step(0, number, at, {"sync": 4.0, "train": 6.0})
        for part in range(4):
            build.span(0, "sync/gather", at + part, at + part + 0.5, depth=2)
        build.row(Kind.CUDA_SPAN, 0, "sync/gather", at, at + 0.5, depth=2, value=500.0)
    # Of 2 s in gathers, one part instead of four takes between a quarter and all.
    answer = what_if(build, sync__move_model_batches=1)
    assert isinstance(answer, Prediction)
    assert "1 instead of 4 parts" in answer.assumed
    assert answer.mid == pytest.approx(-100 * 2.0 * (1 - 5 / 8) / 10)


def test_layers_without_logits_are_a_part_of_a_forward_pass() -> None:
    config = {
        "model_vocab_size": 1000, "model_hidden_size": 10, "model_intermediate_size": 20,
        "model_num_hidden_layers": 10,
    }  # fmt: skip
    known = {"train.gradient_checkpointing": True, "train.type": "full"}
    build = run({"logprob/old": 2.0, "train": 8.0}, known, config=config)
    # 10 layers of 4 x 100 + 3 x 200 products beside 1000 x 10 of the logits: half of 2 s.
    assert mid(build, train__gradient_checkpointing=False) == pytest.approx(-10)


# --- pieces of models --------------------------------------------------------------------------


def test_lengths_lie_between_their_ends_and_have_their_mean() -> None:
    lengths = spread(10, 30, 110, 4000)
    assert lengths.mean() == pytest.approx(30, rel=0.01)
    assert (lengths.min() >= 10, lengths.max() <= 110) == (True, True)
    for low, mean, high in ((10, 10, 110), (10, 10, 10), (10, 5, 110)):
        assert spread(low, mean, high, 2).tolist() == [mean, mean]


def test_rewards_of_as_many_processes_as_there_are_take_the_slowest() -> None:
    seconds = {"judge": 4.0, "tool": 2.0, "format": 0.5}
    assert [wall_s(seconds, n) for n in (0, 1, 2, 3)] == pytest.approx([6.5, 6.5, 4, 4])


@pytest.mark.parametrize(("count", "published"), [(21, 2.085963), (31, 2.042272)])
def test_a_quantile_of_few_values_is_that_of_the_tables(count: int, published: float) -> None:
    assert 1.959964 * student(count, 1.959964) == pytest.approx(published, rel=8e-6)


def test_processes_begin_as_many_batches_as_they_may_have_ready() -> None:
    """One process, two ready: while the rank works for 3 s, it makes what takes 1, then waits."""
    efforts, rests = np.array([1.0, 1.0, 7.0, 1.0]), np.full(4, 3.0)
    # The third is begun when the first is taken: 7 s later the rank has worked for 6 s.
    assert waits_for_data(efforts, rests, workers=1, prefetch=2).tolist() == [0, 0, 1, 0]


# --- replay ------------------------------------------------------------------------------------


def two_ranks() -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        for rank in (0, 1):
            phases = {"rollout": 4.0, "train": 6.0} if rank else {"train": 6.0}
            build.step(rank, number, 20.0 * number, phases)
            build.collective(rank, number, 20.0 * number + 6 + 4 * rank, 20.0 * number + 10)
    return build


def test_work_is_added_to_the_ranks_that_are_named_and_to_those_alone() -> None:
    model = build_model(analyse(two_ranks().build()))
    before = by_phase(model, ())
    for ranks, shares in (((1,), (0, 1)), ((0,), (1, 0)), (None, (1, 1))):
        after = by_phase(model, (Add("train", 1.0, ranks=ranks),))
        assert after["train"][1] - before["train"][1] == pytest.approx(sum(shares) / 2)
    # Where nothing is to grow, the step begins with it.
    assert replay(model, (Add("reward", 2.0),)).mean() == pytest.approx(12)
    assert replay(model, (Add("reward", -2.0),)).mean() == pytest.approx(10)


def test_a_phase_that_goes_is_told_with_what_it_took() -> None:
    model = build_model(analyse(run({"rollout": 4.0, "train": 6.0}).build()))
    told = by_phase(model, (Edit(("rollout",), 0.0),))
    assert told["rollout"] == pytest.approx((4.0, 0.0))
    assert "reward" not in told


def test_a_run_without_steps_can_not_be_replayed_at_all() -> None:
    assert replay_error(build_model(analyse(TraceBuilder().build()))) == float("inf")
