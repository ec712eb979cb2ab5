"""Published before-and-after results, as far as their inputs are given, told from the "before".

A published table says how long the sides of a step take, not its spans; the run that is replayed
has those sides and nothing else. Most runs before were colocated, and what a side takes on a part
of the GPUs is not in their tables: for these the model says that it is unknown. Asked with sides
that stay as long as they are, it gives what overlap alone brings.
"""

from __future__ import annotations

import pytest

from grpo_doctor.whatif import Prediction
from tests.build import TraceBuilder
from tests.unit.whatif.models.runs import mid, reason, run, what_if

VERL_ASYNC = "https://verl.readthedocs.io/en/latest/advance/fully_async.html"
VERL_ONE_STEP = "https://verl.readthedocs.io/en/latest/advance/one_step_off.html"


def steps(
    generation: float,
    old_logprobs: float,
    update: float,
    other_s: float = 0.0,
    mode: str = "server",
) -> TraceBuilder:
    """A step in units of a hundred published seconds; the rest overlaps with nothing."""
    phases = {
        "rollout": generation / 100, "logprob": old_logprobs / 100, "train": update / 100,
        "dataload": other_s / 100,
    }  # fmt: skip
    return run(phases, {"vllm.mode": mode}, framework="verl", framework_version="0.7.0")


# verl's fully asynchronous trainer, Qwen2.5-Math-7B: (GPUs, step, generation, old log-probs,
# update, and how many times as fast asynchronous training was). The step has some seconds more.
COLOCATED = [
    (32, 790, 357, 108, 270, 1.72),
    (64, 365, 151, 70, 133, 1.72),
    (128, 356, 178, 54, 114, 2.67),
]


@pytest.mark.parametrize(("gpus", "step", "generation", "old", "update", "times"), COLOCATED)
def test_verl_overlapping_rollout_and_training_gains_where_both_are_long(
    gpus: int, step: int, generation: float, old: float, update: float, times: float
) -> None:
    """Source: `VERL_ASYNC`; 1.72 to 2.67 times, which also has partial rollouts and staleness in
    it: the direction is that of the overlap alone, and its size is a part of the published one."""
    other_s = step - generation - old - update
    change = mid(steps(generation, old, update, other_s), rollout__async=True)
    assert change < -20
    assert 1 / (1 + change / 100) <= times + 0.15, gpus


def test_verl_train_bound_overlap_brings_almost_nothing() -> None:
    """Source: `VERL_ASYNC`, 16 GPUs at 10,000 tokens: 53 s of generation, 430 s of update; 1.0
    times as fast."""
    change = mid(steps(53, 0, 430), rollout__async=True)
    assert -12 <= change < 0


def test_verl_one_step_off_gains() -> None:
    """Source: `VERL_ONE_STEP`, FSDP2 colocated 749 s (321 generation, 88 old log-probs, 286
    update): +23%; with Megatron 699 s (207, 119, 344): +40%. Both gain."""
    for sides in ((321, 88, 286), (207, 119, 344)):
        assert mid(steps(*sides), rollout__async=True) < -20


def test_of_a_run_that_shares_its_gpus_nothing_is_said() -> None:
    """NeMo-RL's one-step-off run lost on 16 GB200 (221 to 301 s) and gained on 32 GPUs (192 to
    152 s): with fewer GPUs for either side the sides themselves become longer, by how much the
    run before does not show. Source: https://github.com/NVIDIA-NeMo/RL, performance summary."""
    refusal = reason(steps(100, 10, 100, mode="colocate"), rollout__async=True)
    assert "on a part of the GPUs was not measured" in refusal


def test_ms_swift_gradient_checkpointing_off_is_faster_and_less_than_a_third() -> None:
    """Source: ms-swift's vit_gradient_checkpointing.sh, Qwen2.5-VL with LoRA: all recomputation
    2.45 s per step, none 1.95 s (-20%)."""
    patient = run(
        {"train": 2.45}, {"train.gradient_checkpointing": True, "train.type": "lora"},
        framework="ms-swift", framework_version="4.6.0",
    )  # fmt: skip
    prediction = what_if(patient, train__gradient_checkpointing=False)
    assert isinstance(prediction, Prediction)
    assert prediction.low <= -20.4 <= prediction.high


def test_ms_swift_padding_free_is_faster_where_padding_was_counted() -> None:
    """Source: ms-swift's padding_free scripts: DPO 3.32 to 1.90 s per step (-43%), another run 26
    to 13 hours (-50%). Their share of padding is not given; with half of the places padding the
    direction is right, and without a count nothing is said."""
    counters = {"train/token_places": 1000.0, "train/tokens": 500.0}
    patient = run({"train": 3.32}, {"train.padding_free": False}, counters, framework="ms-swift")
    assert mid(patient, train__padding_free=True) < -15
    silent = run({"train": 3.32}, {"train.padding_free": False}, framework="ms-swift")
    assert "not recorded" in reason(silent, train__padding_free=True)
