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
BATCHES = {"train.micro_batch": 2, "train.grad_accumulation": 4}
PARTS, SPG, PIXELS = "sync.move_model_batches", "rollout.steps_per_generation", "data.max_pixels"
LIMIT = "vllm.max_num_seqs"
SLEEP, WORKERS = "vllm.sleep_level", "reward.num_workers"
IN_8, ASLEEP, BETA = {PARTS: 8}, {SLEEP: 1}, {"train.beta": 0.04}
LOGPROB = {"logprob": 2.0, "train": 8.0}
JUDGED = {"reward/judge": 2.0, "train": 8.0}
BOTH_OFFLOADED = {"offload.model": True, "offload.optimizer": True}
RECOMPUTES, LONGEST = "train.gradient_checkpointing", "rollout.max_completion_length"
RECOMPUTED = {RECOMPUTES: True, "train.type": "full"}
Case = tuple[dict[str, float], dict[str, Any], dict[str, float], str, Any, float | str]

# Phases of a step of 10 s, settings, counters, the setting asked for: percent or a part of why not.
CASES: dict[str, Case] = {
    "half of the parts": (SYNCED, IN_8, {}, PARTS, 4, -5.0),
    "as many parts": (SYNCED, IN_8, {}, PARTS, 8, 0.0),
    "more parts": (SYNCED, IN_8, {}, PARTS, 9, "one more part"),
    "parts taken away are one part": (SYNCED, IN_8, {}, PARTS, None, -8.75),
    "a limit that nobody knows": (
        SYNCED,
        {LIMIT: 8},
        {},
        LIMIT,
        None,
        f"{LIMIT} is not set is not",
    ),
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
    "as many steps of a rollout as without the setting": (
        {"rollout": 4.0, "train": 6.0},
        {"train.grad_accumulation": 2},
        {},
        SPG,
        2,
        0.0,
    ),
    "bytes of one of two offloads": (
        AWAKE,
        BOTH_OFFLOADED,
        {"offload/model_bytes": 1e9},
        "offload.model",
        False,
        "whose was not",
    ),
    "offloads that moved nothing": (
        AWAKE,
        BOTH_OFFLOADED,
        {"offload/model_bytes": 0.0, "offload/optimizer_bytes": 0.0},
        "offload.model",
        False,
        "whose was not",
    ),
    "pixels of no image": (
        IN_TRAINER,
        {},
        {**IMAGES, "dataload/images": 0.0},
        PIXELS,
        500_000,
        "how large",
    ),
    "images without pixels": (
        IN_TRAINER,
        {},
        {**IMAGES, "dataload/pixels": 0.0},
        PIXELS,
        500_000,
        "at least one pixel",
    ),
    "images to be of no pixel": (IN_TRAINER, {}, IMAGES, PIXELS, 0, "at least one pixel"),
    "images that nobody counted": (
        IN_TRAINER,
        {},
        {"dataload/images": 4.0},
        PIXELS,
        500_000,
        "how large",
    ),
    "processes that may keep up": (
        {"dataload": 0.2, "train": 9.8},
        {"dataload.num_workers": 1},
        {},
        "dataload.num_workers",
        2,
        "was not recorded",
    ),
    "processes that do not keep up": (
        {"dataload": 0.4, "train": 9.6},
        {"dataload.num_workers": 1},
        {},
        "dataload.num_workers",
        2,
        -4.0,
    ),
    "a forward pass below half of training is measured": (
        {"logprob/reference": 3.0, "train": 7.0},
        RECOMPUTED,
        {},
        RECOMPUTES,
        False,
        -30.0,
    ),
    "one of half of training holds more than the layers, which are counted": (
        {"logprob/reference": 4.0, "train": 8.0},
        RECOMPUTED,
        {},
        RECOMPUTES,
        False,
        -100 / 6,
    ),
    "passes as wide as they were counted": (
        # 600 places of 4 sequences: 100 of 150 tokens are a completion's, of which 50 go.
        {"rollout": 4.0, "train": 6.0},
        {"train.micro_batch": 4},
        {"train/token_places": 600.0},
        LONGEST,
        50,
        -30.0,
    ),
    "passes shrink by no more than their completions": (
        {"rollout": 4.0, "train": 6.0},
        {"train.micro_batch": 4},
        {"train/token_places": 200.0},
        LONGEST,
        50,
        -35.0,
    ),
    "passes that were not counted stay": (
        {"rollout": 4.0, "train": 6.0},
        {"train.micro_batch": 4},
        {},
        LONGEST,
        50,
        -20.0,
    ),
    "padding of passes that all cost the same, or nothing of their own": (
        {"train": 8.0, "rollout": 2.0},
        {},
        {"train/token_places": 400.0, "train/tokens": 200.0},
        "train.padding_free",
        True,
        -20.0,
    ),
    "padding of passes that were not counted": (
        {"train": 8.0},
        {},
        {"train/tokens": 200.0},
        "train.padding_free",
        True,
        "was not recorded",
    ),
    "tokens of passes that were not counted": (
        {"train": 8.0},
        {},
        {"train/token_places": 9.0},
        "train.padding_free",
        True,
        "was not recorded",
    ),
    "micro-batches that were not counted": (
        {"train": 8.0},
        {"train.grad_accumulation": 1, "train.micro_batch": 4},
        {},
        "train.micro_batch",
        2,
        "another batch",
    ),
}


# Longest completions have 100 tokens, where a model asks.
METRICS = {"completions/max_length": 100.0}


@pytest.mark.parametrize("name", CASES)
def test_a_small_run_has_the_answer_that_arithmetic_gives(name: str) -> None:
    phases, settings, counters, setting, value, expected = CASES[name]
    build = run(phases, settings, counters, metrics=METRICS)
    after = {setting.replace(".", "__"): value}
    if isinstance(expected, str):
        assert expected in reason(build, **after)
    else:
        assert mid(build, **after) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "after"),
    [
        ({"train.micro_batch": 2}, {"train__micro_batch": 4}),
        ({"train.grad_accumulation": 2}, {"train__grad_accumulation": 4}),
        ({}, {"train__micro_batch": 4, "train__grad_accumulation": 2}),
        (BATCHES, {"train__micro_batch": 0}),
        (BATCHES, {"train__micro_batch": 4, "train__grad_accumulation": 0}),
    ],
)
def test_a_batch_of_which_a_part_is_unknown_or_none_is_not_guessed(
    settings: dict[str, Any], after: dict[str, Any]
) -> None:
    build = run({"train": 8.0}, settings, framework="homemade")
    assert "number of the micro-batches was not recorded" in reason(build, **after)


def test_passes_without_counts_are_of_one_size() -> None:
    build = run({"train": 8.0}, BATCHES)
    after = {"train__micro_batch": 4, "train__grad_accumulation": 2}
    assert "of one size" in reason(build, **after)


def test_how_lengths_are_sorted_matters_not_where_passes_are_not_known() -> None:
    build = run({"train": 8.0}, {}, {"train/token_places": 2.0, "train/tokens": 1.0},
                framework="homemade")  # fmt: skip
    assert mid(build, train__group_by_length=True) == 0


@pytest.mark.parametrize(("used_gib", "fits"), [(72.0, True), (72.5, False)])
def test_gpus_may_be_90_percent_full_as_they_are(used_gib: float, fits: bool) -> None:
    build = run({"train": 8.0}, RECOMPUTED)
    build.gpu("GPU-0", memory_gib=80.0)
    used = [used_gib * 2**30] * 2
    build.series("gpu.memory_used", "bytes", [0, 60], used, scope="gpu", gpu="GPU-0")
    after = {"train__gradient_checkpointing": False}
    if fits:
        assert mid(build, **after) == -25
    else:
        assert "91% full" in reason(build, **after)


def test_a_limit_as_long_as_the_longest_completion_is_no_change() -> None:
    build = run({"rollout": 4.0}, {LONGEST: 200}, metrics=METRICS)
    prediction = what_if(build, rollout__max_completion_length=100)
    assert isinstance(prediction, Prediction)
    assert "instead of" not in prediction.assumed


@pytest.mark.parametrize(
    ("order", "change"),
    # Two processes: of those in order, the first and the third share one.
    [("a.py:second", -20.0), (["a.py:second"], -20.0), (None, -10.0), ([], -10.0)],
)
def test_reward_functions_come_in_the_order_of_their_setting(order: Any, change: float) -> None:
    seconds = {"first": 3.0, "second": 1.0, "third": 1.0}
    build = run(
        {**{f"reward/{name}": s for name, s in seconds.items()}, "train": 5.0},
        {WORKERS: 1},
        {f"reward/{name}_s": s for name, s in seconds.items()},
        config={"reward_funcs": order},
    )
    assert mid(build, reward__num_workers=2) == change


SAMPLES = {"rank.cpu": ("%", 160.0), "rank.processors": ("", 2.0)}


@pytest.mark.parametrize(("names", "change"), [
    (("rank.cpu", "rank.processors"), -20.0), (("rank.cpu",), -40.0), (("rank.processors",), -40.0),
    ((), -40.0),
])  # fmt: skip
def test_what_a_host_computes_bounds_a_step_where_both_it_and_the_cores_are_known(
    names: tuple[str, ...], change: float
) -> None:
    build = run(IN_TRAINER, {"dataload.num_workers": 0})
    for name in names:
        unit, value = SAMPLES[name]
        build.series(name, unit, [0, 100], [value] * 2, scope="rank", rank=0)
    assert mid(build, dataload__num_workers=4) == pytest.approx(change)


def batches(*seconds: float) -> TraceBuilder:
    """Steps of 8 s of work and 2 s of waiting for what one loader process has read."""
    build = run({"dataload": 2.0, "train": 8.0}, {"dataload.num_workers": 1})
    times = [20.0 * number + 0.01 for number in range(len(seconds))]
    build.series("dataload/read_s", "", times, list(seconds), scope="counter", rank=0)
    return build


def test_batches_ahead_shorten_what_is_waited_for() -> None:
    # 60 s of loading in 48 s of work: 12 s are waited for, whatever is ready. Of two ahead the last
    # is begun when the fourth is taken, 16 s before it is wanted: 34 s are waited for.
    change = mid(batches(2, 2, 2, 2, 2, 50), dataload__prefetch_factor=8)
    assert change == pytest.approx(-20 * (1 - 12 / 34))


def test_five_batches_say_how_uneven_they_are_and_four_do_not() -> None:
    assert mid(batches(2, 2, 2, 2, 26), dataload__prefetch_factor=8) < 0
    unknown = reason(batches(2, 2, 2, 26), dataload__prefetch_factor=8)
    assert "each batch was not recorded" in unknown


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
    settings = {"train.gradient_checkpointing": True, "train.type": "full"}
    build = run({"logprob/old": 2.0, "train": 8.0}, settings, config=config)
    # 10 layers of 4 x 100 + 3 x 200 products beside 1000 x 10 of the logits: half of 2 s.
    assert mid(build, train__gradient_checkpointing=False) == pytest.approx(-10)


# --- pieces of models --------------------------------------------------------------------------


def test_lengths_lie_between_their_ends_and_have_their_mean() -> None:
    lengths = spread(10, 30, 110, 4000)
    assert lengths.mean() == pytest.approx(30, rel=0.01)
    assert (lengths.min() >= 10, lengths.max() <= 110) == (True, True)
    for low, mean, high in ((10, 10, 110), (10, 10, 10), (10, 5, 110), (10, 20, 10)):
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
    seconds = by_phase(model, (Edit(("rollout",), 0.0),))
    assert seconds["rollout"] == pytest.approx((4.0, 0.0))
    assert "reward" not in seconds


def test_a_run_without_steps_can_not_be_replayed_at_all() -> None:
    assert replay_error(build_model(analyse(TraceBuilder().build()))) == float("inf")
