"""What each model says of small runs: a number where it was measured, else the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.whatif.models.runs import (
    IN_TRAINER,
    LONGEST,
    METRICS,
    RECOMPUTED,
    RECOMPUTES,
    SLEEP,
    WORKERS,
    mid,
    reason,
    run,
)

SYNCED = {"sync/gather": 2.0, "train": 8.0}
TWO_PASSES = {"rollout": 4.0, "logprob/old": 2.0, "train": 4.0}
PASSES = {"train.grad_accumulation": 2, "rollout.steps_per_generation": 4}
AT_ONCE = {**PASSES, "rollout.steps_per_generation": 2}
AWAKE = {"offload": 2.0, "train": 8.0}
IMAGES = {"dataload/pixels": 4.0e6, "dataload/images": 4.0}
TOKENS = {"dataload/image_tokens": 50.0, "train/token_places": 400.0}
PARTS, SPG, PIXELS = "sync.move_model_batches", "rollout.steps_per_generation", "data.max_pixels"
LIMIT = "vllm.max_num_seqs"
IN_8, ASLEEP, BETA = {PARTS: 8}, {SLEEP: 1}, {"train.beta": 0.04}
LOGPROB = {"logprob": 2.0, "train": 8.0}
JUDGED = {"reward/judge": 2.0, "train": 8.0}
BOTH_OFFLOADED = {"offload.model": True, "offload.optimizer": True}
Case = tuple[dict[str, float], dict[str, Any], dict[str, float], str, Any, float | str]

# Phases of a step of 10 s, settings, counters, the setting asked for: percent or a part of why not.
CASES: dict[str, Case] = {
    "half of the parts": (SYNCED, IN_8, {}, PARTS, 4, -5.0),
    "as many parts": (SYNCED, IN_8, {}, PARTS, 8, 0.0),
    "more parts": (SYNCED, IN_8, {}, PARTS, 9, "one more part"),
    "parts taken away are one part": (SYNCED, IN_8, {}, PARTS, None, -8.75),
    "a limit that nobody knows": (SYNCED, {LIMIT: 8}, {}, LIMIT, None,
        f"the default of {LIMIT} is unknown"),
    "one gather a step": (SYNCED, {}, {}, PARTS, 1, 0.0),
    "parts without a sync": ({"train": 10.0}, {}, {}, PARTS, 1, "no weight sync"),
    "parts not counted": ({"sync": 2.0, "train": 8.0}, {}, {}, PARTS, 1, "the number of parts"),
    "a rollout per step, no old log-probs": (TWO_PASSES, PASSES, {}, SPG, 2, 0.0),
    "another number is no multiple": (TWO_PASSES, PASSES, {}, SPG, 3, "not a multiple"),
    "old log-probs would be needed": (TWO_PASSES, AT_ONCE, {}, SPG, 4, "requires"),
    "half a rollout": (TWO_PASSES, {**PASSES, "rollout.steps_per_generation": 8}, {}, SPG, 4, 20.0),
    "several iterations": (TWO_PASSES, {**PASSES, "train.num_iterations": 2}, {}, SPG, 2,
        "several iterations"),
    "one iteration is none more": (TWO_PASSES, {**PASSES, "train.num_iterations": 1}, {}, SPG, 2,
        0.0),
    "beta of a term that is there": (TWO_PASSES, BETA, {}, "train.beta", 0.1, 0.0),
    "beta of a term that is not": (TWO_PASSES, {"train.beta": 0.0}, {}, "train.beta", 0.1,
        "not measured"),
    "all log-probs are the reference's": (LOGPROB, BETA, {}, "train.beta", 0.0, -20.0),
    "some are the sampling policy's": (LOGPROB, {**BETA, **PASSES}, {}, "train.beta", 0.0,
        "no separate span"),
    "as many passes as per rollout": (LOGPROB, {**BETA, **AT_ONCE}, {}, "train.beta", 0.0, -20.0),
    "iterations are off-policy": (LOGPROB, {**BETA, "train.num_iterations": 2}, {}, "train.beta",
        0.0, "no separate span"),
    "vLLM stays awake": (AWAKE, ASLEEP, {}, SLEEP, 0, -20.0),
    "vLLM sleeps deeper": (AWAKE, ASLEEP, {}, SLEEP, 2, "another sleep level"),
    "other parts are offloaded too": (AWAKE, {**ASLEEP, "offload.model": True}, {}, SLEEP, 0,
        "which part"),
    "others that are off": (AWAKE, {**ASLEEP, "offload.model": False}, {}, SLEEP, 0, -20.0),
    "images read by the trainer": (IN_TRAINER, {"dataload.num_workers": 0},
        {**IMAGES, "dataload/process_s": 2.0}, PIXELS, 500_000, -10.0),
    "images read by others": (IN_TRAINER, {"dataload.num_workers": 2},
        {**IMAGES, "dataload/process_s": 2.0}, PIXELS, 500_000, "not recorded"),
    "images as tokens": (IN_TRAINER, {"dataload.num_workers": 2, "rollout.num_generations": 4},
        {**IMAGES, **TOKENS}, PIXELS, 500_000, -7.5),
    "images of that size": (IN_TRAINER, {}, IMAGES, PIXELS, 1_000_000, 0.0),
    "images without a size": (IN_TRAINER, {}, {}, PIXELS, 500_000, "how large"),
    "rewards that were not timed": (JUDGED, {"reward.num_workers": 1}, {}, WORKERS, 2,
        "not recorded"),
    "one reward function": (JUDGED, {"reward.num_workers": 1}, {"reward/judge_s": 2.0}, WORKERS, 2,
        0.0),
    "as many steps of a rollout as without the setting": ({"rollout": 4.0, "train": 6.0},
        {"train.grad_accumulation": 2}, {}, SPG, 2, 0.0),
    "bytes of one of two offloads": (AWAKE, BOTH_OFFLOADED, {"offload/model_bytes": 1e9},
        "offload.model", False, "by setting was not"),
    "offloads that moved nothing": (AWAKE, BOTH_OFFLOADED,
        {"offload/model_bytes": 0.0, "offload/optimizer_bytes": 0.0}, "offload.model", False,
        "by setting was not"),
    "pixels of no image": (IN_TRAINER, {}, {**IMAGES, "dataload/images": 0.0}, PIXELS, 500_000,
        "how large"),
    "images without pixels": (IN_TRAINER, {}, {**IMAGES, "dataload/pixels": 0.0}, PIXELS, 500_000,
        "at least one pixel"),
    "images to be of no pixel": (IN_TRAINER, {}, IMAGES, PIXELS, 0, "at least one pixel"),
    "images that nobody counted": (IN_TRAINER, {}, {"dataload/images": 4.0}, PIXELS, 500_000,
        "how large"),
    "processes that may keep up": ({"dataload": 0.2, "train": 9.8}, {"dataload.num_workers": 1}, {},
        "dataload.num_workers", 2, "was not recorded"),
    "processes that do not keep up": ({"dataload": 0.4, "train": 9.6}, {"dataload.num_workers": 1},
        {}, "dataload.num_workers", 2, -4.0),
    "a forward pass below half of training is measured": ({"logprob/reference": 3.0, "train": 7.0},
        RECOMPUTED, {}, RECOMPUTES, False, -30.0),
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
    "passes shrink by no more than their completions": ({"rollout": 4.0, "train": 6.0},
        {"train.micro_batch": 4}, {"train/token_places": 200.0}, LONGEST, 50, -35.0),
    "passes that were not counted stay": ({"rollout": 4.0, "train": 6.0}, {"train.micro_batch": 4},
        {}, LONGEST, 50, -20.0),
    "padding of passes that all cost the same, or nothing of their own": (
        {"train": 8.0, "rollout": 2.0},
        {},
        {"train/token_places": 400.0, "train/tokens": 200.0},
        "train.padding_free",
        True,
        -20.0,
    ),
    "padding of passes that were not counted": ({"train": 8.0}, {}, {"train/tokens": 200.0},
        "train.padding_free", True, "was not recorded"),
    "tokens of passes that were not counted": ({"train": 8.0}, {}, {"train/token_places": 9.0},
        "train.padding_free", True, "was not recorded"),
    "micro-batches that were not counted": ({"train": 8.0},
        {"train.grad_accumulation": 1, "train.micro_batch": 4}, {}, "train.micro_batch", 2,
        "rows instead of"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_small_run_has_the_answer_that_arithmetic_gives(name: str) -> None:
    phases, settings, counters, setting, value, expected = CASES[name]
    build = run(phases, settings, counters, metrics=METRICS)
    after = {setting.replace(".", "__"): value}
    if isinstance(expected, str):
        assert expected in reason(build, **after)
    else:
        assert mid(build, **after) == pytest.approx(expected)


def test_a_rollout_feeds_the_passes_that_there_then_are() -> None:
    build = run(TWO_PASSES, {**PASSES, "train.micro_batch": 2}, {}, metrics=METRICS)
    fewer = {"train__grad_accumulation": 1, "train__micro_batch": 4}
    assert "not a multiple" not in reason(build, rollout__steps_per_generation=1, **fewer)
