"""The fixes that are tried: a run that has the problem, and what is changed about it.

A fix that is a setting is applied by the flag that a finding would print. `after_flags` replace
flags where no setting can mend it: one rank's own slowness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.accuracy.inputs import MODEL, PICTURES, PROMPTS, SHORT
from tests.accuracy.rewards import SLOW_ROWS

REWARDS = str(Path(__file__).with_name("rewards.py"))
INPUTS = "{inputs}"
Flags = Mapping[str, str]

# The embedded model on prompts of many lengths.
_SMALL: Flags = {
    "dataset": f"{INPUTS}/{PROMPTS}",
    "reward_funcs": f"{REWARDS}:length",
    "reward_num_workers": "0",
    "dataloader_num_workers": "0",
    "max_steps": "14",
    "save_steps": "0",
    "logging_steps": "100",
    "num_generations": "4",
    "per_device_train_batch_size": "8",
    "gradient_accumulation_steps": "2",
    "max_completion_length": "12",
    "beta": "0",
}
# Six million weights and few tokens: moving and saving them takes as long as computing does.
_LARGE: Flags = {
    **_SMALL,
    "model": f"{INPUTS}/{MODEL}",
    "dataset": f"{INPUTS}/{SHORT}",
    "deepspeed": "zero2",
    "train_type": "full",
    "torch_dtype": "float32",
    "gradient_checkpointing": "false",
    "num_generations": "2",
    "per_device_train_batch_size": "2",
    "gradient_accumulation_steps": "1",
    "max_completion_length": "4",
    "learning_rate": "1e-4",
}


@dataclass(frozen=True)
class Fix:
    """One fix: `before` are flags, `settings` what is changed, by canonical names.

    `rule` predicts where no setting does; `needs` is a package that not everyone has.
    """

    name: str
    before: Flags
    settings: Mapping[str, Any] = field(default_factory=dict)
    after_flags: Flags = field(default_factory=dict)
    rule: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""

    @property
    def possible(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None


def _of(base: Flags, **flags: str) -> Flags:
    return {**base, **flags}


_VLLM = _of(
    _SMALL,
    use_vllm="true",
    vllm_mode="colocate",
    vllm_max_model_len="256",
    max_completion_length="24",
)
_OFFLOADED = _of(_LARGE, offload_model="true", offload_optimizer="true")

FIXES: tuple[Fix, ...] = (
    Fix(
        "optimizer offload off",
        _of(_LARGE, offload_optimizer="true"),
        {"offload.optimizer": False},
    ),
    Fix("model offload off", _of(_LARGE, offload_model="true"), {"offload.model": False}),
    Fix(
        "both offloads off",
        _OFFLOADED,
        {"offload.model": False, "offload.optimizer": False},
    ),
    Fix("of both offloads the optimizer's off", _OFFLOADED, {"offload.optimizer": False}),
    Fix(
        "no garbage collection after offload",
        _of(_LARGE, offload_optimizer="true", gc_collect_after_offload="true"),
        {"offload.gc_collect": False},
    ),
    Fix(
        "loader processes 0 to 2",
        _SMALL,
        {"dataload.num_workers": 2},
        environment={SLOW_ROWS: "1"},
    ),
    Fix(
        "reward processes 1 to 2",
        _of(
            _SMALL,
            reward_funcs=f"{REWARDS}:judge {REWARDS}:second_judge",
            reward_num_workers="1",
        ),
        {"reward.num_workers": 2},
    ),
    Fix(
        "micro-batch 2 to 8",
        _of(_SMALL, per_device_train_batch_size="2", gradient_accumulation_steps="8"),
        {"train.micro_batch": 8, "train.grad_accumulation": 2},
    ),
    Fix(
        "straggler fixed",
        _of(_SMALL, reward_funcs=f"{REWARDS}:late_on_rank_1"),
        after_flags={"reward_funcs": f"{REWARDS}:even"},
        rule="GD004",
    ),
    Fix(
        "checkpoints every 2 to every 8 steps",
        _of(_LARGE, save_steps="2", max_steps="16", save_total_limit="1"),
        {"checkpoint.save_steps": 8},
    ),
    Fix(
        "checkpoints without optimizer state",
        _of(_LARGE, save_steps="2", max_steps="16", save_total_limit="1"),
        {"checkpoint.save_only_model": True},
    ),
    Fix(
        "no gradient checkpointing",
        _of(
            _LARGE,
            gradient_checkpointing="true",
            dataset=f"{INPUTS}/{PROMPTS}",
            per_device_train_batch_size="4",
        ),
        {"train.gradient_checkpointing": False},
    ),
    Fix(
        "a prompt computed once for its completions",
        _of(_SMALL, share_prompts="false", num_generations="8"),
        after_flags={"share_prompts": "true"},
        rule="GD076",
    ),
    Fix(
        "completions of 24 to 12 tokens",
        _of(_SMALL, max_completion_length="24"),
        {"rollout.max_completion_length": 12},
    ),
    Fix("no reference model", _of(_SMALL, beta="0.04"), {"train.beta": 0.0}),
    Fix(
        "smaller images",
        _of(
            _SMALL,
            model="embedded-vl",
            dataset=f"{INPUTS}/{PICTURES}",
            per_device_train_batch_size="2",
            gradient_accumulation_steps="2",
            num_generations="2",
            max_completion_length="8",
            max_steps="14",
        ),
        {"data.max_pixels": 28224},
    ),
    Fix(
        "16 instead of 2 sequences in the engine",
        _of(_VLLM, vllm_max_num_seqs="2"),
        {"vllm.max_num_seqs": 16},
        needs="vllm",
    ),
    Fix(
        "weights to the engine in 1 instead of 8 parts",
        _of(_VLLM, move_model_batches="8"),
        {"sync.move_model_batches": 1},
        needs="vllm",
    ),
)


def arguments(flags: Flags, inputs: Path, seed: int) -> list[str]:
    """A command line for these flags."""
    words = ["--seed", str(seed)]
    for name, value in flags.items():
        words += [f"--{name}", *value.replace(INPUTS, str(inputs)).split()]
    return words
