from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.knobs import KNOBS
from grpo_doctor.whatif import Prediction
from grpo_doctor.whatif.models import BY_KNOB, MODELS
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import mid, reason, run, what_if

GIB = 2**30
OFFLOAD = {"offload": 2.0, "train": 8.0}
BOTH_ON = {"offload.model": True, "offload.optimizer": True}


def test_every_model_speaks_of_knobs_that_exist_and_no_two_of_one() -> None:
    names = [name for cost_model in MODELS for name in cost_model.knobs]
    assert len(names) == len(set(names)) == len(BY_KNOB)
    assert set(names) <= {knob.name for knob in KNOBS}


NUMBERS = (
    "checkpoint.save_steps", "dataload.num_workers", "dataload.prefetch_factor",
    "data.max_pixels", "reward.num_workers", "rollout.max_completion_length",
    "rollout.steps_per_generation", "train.beta", "train.grad_accumulation", "train.micro_batch",
    "vllm.gpu_memory_utilization", "vllm.max_num_seqs", "sync.move_model_batches",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-8, -0.5, 0, 3, 10**12, None])
def test_a_value_that_makes_no_sense_is_answered_in_words_or_bounds(
    name: str, value: float | None
) -> None:
    counters = {
        "dataload/pixels": 4.0e6, "dataload/images": 4.0, "dataload/process_s": 1.0,
        "train/token_places": 100.0, "train/tokens": 50.0, "reward/judge_s": 1.0,
        "engine/running_requests_peak": 4.0, "engine/waiting_requests_peak": 9.0,
        "engine/kv_cache_peak_pct": 99.0, "engine/generated_tokens": 1600.0,
        "engine/completions_of_65_to_128_tokens": 16.0,
    }  # fmt: skip
    phases = {
        "dataload": 1.0, "sync/gather": 1.0, "rollout/generate": 4.0, "reward/judge": 1.0,
        "logprob/reference": 1.0, "train": 4.0, "checkpoint": 1.0,
    }  # fmt: skip
    settings = {
        "vllm.use": True, "vllm.max_num_seqs": 4, "vllm.gpu_memory_utilization": 0.4,
        "train.micro_batch": 4, "train.grad_accumulation": 4, "dataload.num_workers": 2,
        "dataload.prefetch_factor": 2, "reward.num_workers": 1, "checkpoint.save_steps": 1,
        "rollout.max_completion_length": 100, "sync.move_model_batches": 8, "train.beta": 0.04,
    }  # fmt: skip
    metrics = {"completions/max_length": 100.0, "completions/mean_length": 60.0}
    patient = run(phases, settings, counters, metrics=metrics)
    prediction = what_if(patient, **{name.replace(".", "__"): value})
    if isinstance(prediction, Prediction):
        assert -100 <= prediction.low <= prediction.mid <= prediction.high
        assert value is None or value >= 0
    else:
        assert prediction.reason


LOADING = {"dataload": 4.0, "train": 6.0}
BYTES = {"offload/model_bytes": 1.0 * GIB, "offload/optimizer_bytes": 3.0 * GIB}
RECOMPUTED = {"train.gradient_checkpointing": True, "train.type": "full"}
SAVING = {"train": 6.0, "checkpoint/weights": 4.0}
TWO_REWARDS = (
    {"reward/judge": 3.0, "reward/other": 1.0, "train": 6.0}, {"reward.num_workers": 1},
    {"reward/judge_s": 3.0, "reward/other_s": 1.0},
)  # fmt: skip
BUILT_IN = (
    {"reward/accuracy": 4.0, "train": 6.0}, {"reward.num_workers": 1}, {"reward/accuracy_s": 4.0},
)  # fmt: skip
PER_STEP = (
    {"rollout": 1.0, "logprob/old": 2.0, "train": 7.0},
    {"rollout.steps_per_generation": 8, "train.grad_accumulation": 4},
)
IMAGES = (
    LOADING, {"dataload.num_workers": 0, "rollout.num_generations": 2},
    {"dataload/pixels": 4.0e6, "dataload/images": 4.0, "dataload/process_s": 2.0,
     "dataload/image_tokens": 0.0, "train/token_places": 1000.0},
)  # fmt: skip
TOGETHER = (
    {"dataload": 6.0, "offload": 2.0, "train": 2.0},
    {"dataload.num_workers": 0, "offload.optimizer": True},
)
SIDES = {"rollout": 6.0, "train": 4.0}
ZERO_3 = {"deepspeed.stage": 3, "deepspeed.preset": "zero3"}
LONGER = ({"rollout/generate": 4.0, "train": 2.0}, {"rollout.max_completion_length": 200})
METRICS = {"metrics": {"completions/max_length": 100.0}}
SWIFT = {"framework": "ms-swift"}
# What a run has (phases, settings, counters), more of it, what is set, and percent or a part of why
# nothing is said.
Case = tuple[tuple[Any, ...], dict[str, Any], dict[str, Any], float | str]
CASES: dict[str, Case] = {
    "a setting that the run has": ((OFFLOAD, {"offload.model": True}), {}, {"offload.model": True},
        0.0),
    "a setting without a model": ((OFFLOAD,), {}, {"train.lora_rank": 64},
        "no model predicts the effect of train.lora_rank"),
    "its only offload": ((OFFLOAD, {"offload.optimizer": True}), {}, {"offload.optimizer": False},
        -20),
    "an offload that may be off already": ((OFFLOAD,), {"framework": "homemade"},
        {"offload.optimizer": False}, "was not recorded"),
    "one of two offloads, 3 GiB": ((OFFLOAD, BOTH_ON, BYTES), {}, {"offload.optimizer": False},
        -15),
    "one of two offloads, 1 GiB": ((OFFLOAD, BOTH_ON, BYTES), {}, {"offload.model": False}, -5),
    "both offloads": ((OFFLOAD, BOTH_ON, BYTES), {},
        {"offload.model": False, "offload.optimizer": False}, -20),
    "one of two offloads without bytes": ((OFFLOAD, BOTH_ON), {}, {"offload.model": False},
        "by setting was not recorded"),
    "offload switched on": (({"train": 8.0}, {"offload.model": False}), {}, {"offload.model": True},
        "not measured"),
    "garbage collection with a span": (({"offload/collect": 1.0, "train": 9.0},
        {"offload.gc_collect": True}), {}, {"offload.gc_collect": False}, -10),
    "garbage collection without": ((OFFLOAD, {"offload.gc_collect": True}), {},
        {"offload.gc_collect": False}, "offload/collect"),
    "another zero stage": ((OFFLOAD, ZERO_3), {}, {"deepspeed.preset": "zero2"},
        "gathers of another ZeRO stage"),
    "another stage of an offloaded one": ((OFFLOAD, {"deepspeed.preset": "x",
        "deepspeed.offload_optimizer": True}), {}, {"deepspeed.preset": "zero2"},
        "arithmetic moves too"),
    "loading behind the step": ((LOADING, {"dataload.num_workers": 0}), {},
        {"dataload.num_workers": 2}, -40),
    "loading behind the step, one process": ((LOADING, {"dataload.num_workers": 0}), {},
        {"dataload.num_workers": 1}, -40),
    # 8 s / 2 processes: 4 s.
    "loading that is too long for the rest": (({"dataload": 8.0, "train": 2.0},
        {"dataload.num_workers": 0}), {}, {"dataload.num_workers": 2}, -60),
    "processes that never catch up": ((LOADING, {"dataload.num_workers": 1}), {},
        {"dataload.num_workers": 2}, -40),
    # 18 s / 2 = 9 s.
    "timed processes that never catch up": ((LOADING, {"dataload.num_workers": 1},
        {"dataload/read_s": 18.0}), {}, {"dataload.num_workers": 2}, -10),
    "batches ahead that were not timed": ((LOADING, {"dataload.num_workers": 1}), {},
        {"dataload.prefetch_factor": 8}, "each batch was not recorded"),
    "batches ahead of no process": ((LOADING, {"dataload.num_workers": 0}), {},
        {"dataload.prefetch_factor": 8}, 0),
    "rewards at once": (TWO_REWARDS, {"config": {"reward_funcs": ["a.py:judge", "a.py:other"]}},
        {"reward.num_workers": 2}, -10),
    "rewards in more processes than there are": (TWO_REWARDS, {"config": {"reward_funcs":
        ["a.py:judge", "a.py:other"]}}, {"reward.num_workers": 8}, -10),
    "a built-in reward is cut into parts": (BUILT_IN, {"config": {"reward_funcs": ["accuracy"]}},
        {"reward.num_workers": 4}, -30),
    "rewards of another framework": (({"reward": 4.0}, {"reward.num_workers": 1}),
        {"framework": "verl"}, {"reward.num_workers": 4}, "this framework"),
    "checkpoints less often": ((SAVING, {"checkpoint.save_steps": 1}), {},
        {"checkpoint.save_steps": 4}, -30),
    "no checkpoints": ((SAVING, {"checkpoint.save_steps": 1}), {}, {"checkpoint.save_steps": 0},
        -40),
    "checkpoints without state": (({"train": 6.0, "checkpoint/optimizer": 3.0,
        "checkpoint/weights": 1.0},), {}, {"checkpoint.save_only_model": True}, -30),
    "state of no checkpoint": (({"train": 6.0},), {}, {"checkpoint.save_only_model": True},
        "no checkpoint"),
    "no checkpoint less often": (({"train": 6.0},), {}, {"checkpoint.save_steps": 100},
        "no checkpoint"),
    "no reference model": (({"logprob/reference": 2.0, "train": 8.0}, {"train.beta": 0.04}), {},
        {"train.beta": 0.0}, -20),
    "a heavier reference": (({"logprob/reference": 2.0, "train": 8.0}, {"train.beta": 0.04}), {},
        {"train.beta": 0.1}, 0),
    "a reference that was not there": (({"train": 8.0}, {"train.beta": 0.0}), {},
        {"train.beta": 0.1}, "not measured"),
    "steps of a rollout that is no multiple": (PER_STEP, {}, {"rollout.steps_per_generation": 6},
        "multiple"),
    "recomputation beside a forward pass": (({"logprob/reference": 2.0, "train": 8.0}, RECOMPUTED),
        {}, {"train.gradient_checkpointing": False}, -20),
    "recomputation that is counted": (({"rollout": 2.0, "train": 8.0}, RECOMPUTED), {},
        {"train.gradient_checkpointing": False}, -20),
    "recomputation with adapters": (({"rollout": 2.0, "train": 8.0}, {**RECOMPUTED,
        "train.type": "lora"}), {}, {"train.gradient_checkpointing": False}, -80 / 3),
    "recomputation that may be off already": (({"train": 8.0}, {"train.type": "full"}),
        {"framework": "homemade"}, {"train.gradient_checkpointing": False}, "was not recorded"),
    "asynchronous rollouts": ((SIDES, {"vllm.mode": "server"}), SWIFT, {"rollout.async": True},
        -40),
    "asynchronous rollouts on shared GPUs": ((SIDES, {"vllm.mode": "colocate"}), SWIFT,
        {"rollout.async": True}, "share their GPUs"),
    "more parts of a sync": (({"sync/gather": 4.0, "train": 6.0}, {"sync.move_model_batches": 8}),
        {}, {"sync.move_model_batches": 16}, "saves memory"),
    "smaller images": (IMAGES, {}, {"data.max_pixels": 500_000}, -10),
    "images that are small already": (IMAGES, {}, {"data.max_pixels": 2_000_000}, 0),
    "one of two settings": (TOGETHER, {}, {"dataload.num_workers": 2}, -60),
    "the other of two settings": (TOGETHER, {}, {"offload.optimizer": False}, -20),
    # 6 s / 2 processes no longer fit behind what is left.
    "two settings together": (TOGETHER, {}, {"dataload.num_workers": 2, "offload.optimizer": False},
        -70),
    "of several settings the one without an answer": ((OFFLOAD, {"offload.optimizer": True}), {},
        {"offload.optimizer": False, "checkpoint.save_steps": 10},
        "checkpoint.save_steps: no checkpoint"),
    "a number below zero": (({"rollout": 4.0, "train": 2.0},), {}, {"dataload.num_workers": -1},
        "dataload.num_workers can't be -1"),
    "completions of the new limit": (LONGER, METRICS, {"rollout.max_completion_length": 100}, 0),
    "completions below the new limit": (LONGER, METRICS, {"rollout.max_completion_length": 150}, 0),
    "completions below a higher one": (LONGER, METRICS, {"rollout.max_completion_length": 300}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_setting_gains_what_was_measured_or_says_why_not(name: str) -> None:
    has, facts, after, says = CASES[name]
    asked = {knob.replace(".", "__"): value for knob, value in after.items()}
    if isinstance(says, str):
        assert says in reason(run(*has, **facts), **asked)
    else:
        assert mid(run(*has, **facts), **asked) == pytest.approx(says)


def memory(gib: float) -> TraceBuilder:
    build = run({"offload": 2.0, "train": 8.0}, {"offload.optimizer": True, **RECOMPUTED},
                {"offload/bytes": 30.0 * GIB})  # fmt: skip
    build.gpu("GPU-0", memory_gib=80.0)
    used = [gib * GIB] * 2
    return build.series("gpu.memory_used", "bytes", [0, 60], used, scope="gpu", gpu="GPU-0")


def test_what_takes_memory_stays_where_it_would_not_suffice() -> None:
    assert "does not fit in" in reason(memory(60.0), offload__optimizer=False)
    assert "98% full" in reason(memory(78.0), train__gradient_checkpointing=False)


@pytest.mark.parametrize(("has", "after", "below", "above"), [
    # 2 s less, and rollouts between as long and twice.
    (PER_STEP, {"rollout__steps_per_generation": 4}, -20, -10),
    (({"sync/gather": 4.0, "train": 6.0}, {"sync.move_model_batches": 8}),
     {"sync__move_model_batches": 2}, -30, -1e-9),
])  # fmt: skip
def test_what_is_between_two_bounds_has_an_interval(
    has: tuple[Any, ...], after: dict[str, Any], below: float, above: float
) -> None:
    prediction = what_if(run(*has), **after)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(-15)
    assert prediction.low < below
    assert above < prediction.high <= 0


def test_fewer_loader_processes_cost_time_and_the_interval_says_so() -> None:
    patient = run(
        {"train": 10.0, "dataload": 0.1}, {"dataload.num_workers": 4}, {"dataload/read_s": 15.0}
    )
    prediction = what_if(patient, dataload__num_workers=1)
    assert isinstance(prediction, Prediction)
    assert prediction.mid == pytest.approx(100 * (15 / 10.1 - 1))
    assert prediction.high > prediction.mid + 5


def test_values_that_the_run_has_already_are_no_change() -> None:
    build = run({"rollout": 4.0, "checkpoint": 2.0}, {"checkpoint.steps": 1})
    same = what_if(build, checkpoint__steps=1)
    assert isinstance(same, Prediction)
    assert same.mid == 0
    assert "its own settings" in same.grounds
