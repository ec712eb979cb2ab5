"""Finds a checkpoint, compares it with this launch, and continues from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor_trainer.checkpoint.state import (
    Progress,
    is_replicated,
    load_progress,
    load_safely,
    restore,
)
from grpo_doctor_trainer.checkpoint.writer import (
    FORMAT,
    OPTIMIZER,
    PROGRESS,
    STATE_JSON,
    checkpoints_in,
    rank_file,
)
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import Engine, zero_stage
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.ranks import Ranks, from_main

LATEST = "latest"
# Whole groups of options that change no number of the steps to come, and single ones.
_FREE_GROUPS = ("evaluation", "output", "vllm")
_FREE = {
    *("max_steps", "num_train_epochs", "ddp_timeout", "gradient_checkpointing"),
    "deepspeed",  # its stage is compared by itself
    *("dataloader_num_workers", "dataloader_prefetch_factor"),
    *("reward_timeout", "reward_num_workers"),
    *("offload_model", "offload_optimizer", "gc_collect_after_offload"),
}
_HELD = ("rollout_importance_sampling_mode", "rollout_importance_sampling_threshold")


@dataclass(frozen=True)
class Resume:
    """A checkpoint that was found complete.

    Attributes:
        folder: where it is.
        state: its `trainer_state.json`.
    """

    folder: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The steps that were done when it was written."""
        return int(self.state["step"])

    def rollouts(self, config: TrainerConfig) -> int:
        """Count the rollouts begun until then, each of which took a batch of prompts."""
        return -(-self.step // config.steps_per_rollout)

    def check(self, config: TrainerConfig, ranks: Ranks) -> None:
        """Refuse a launch that could not continue exactly where the checkpoint ends."""
        if self.state["save_only_model"]:
            raise self._refusal(
                "has weights but no optimizer state (--save_only_model true), so a run cannot "
                "continue from it", config
            )  # fmt: skip
        shape = (
            ("ranks", self.state["world_size"], ranks.world_size),
            ("DeepSpeed's ZeRO stage", self.state["zero_stage"], zero_stage(config)),
        )
        for name, before, now in shape:
            if before != now:
                raise self._refusal(
                    f"was written with {name} {_spelled(before)}, this launch has {_spelled(now)}: "
                    f"the optimizer state is partitioned for the former. Launch with "
                    f"{_spelled(before)} again", config
                )  # fmt: skip
        if changed := list(_changed(self.state["config"], dataclasses.asdict(config))):
            raise self._refusal(
                f"comes from a run with other options: {', '.join(changed)}. Give the options as "
                "they were", config
            )  # fmt: skip
        before = self.state["config"]["max_steps"]
        follows_length = config.lr_scheduler_type != "constant" or (
            config.warmup_ratio > 0 and not config.warmup_steps
        )
        if before != config.max_steps and follows_length and ranks.is_main:
            LOG.warning(
                "the run now has %d steps and had %d: its learning rate follows another curve",
                config.max_steps, before,
            )  # fmt: skip

    def load(self, engine: Engine, ranks: Ranks) -> Progress:
        """Put back optimizer and random states of this rank; the weights are loaded before."""
        owner = 0 if is_replicated(engine) else ranks.rank
        restore(engine, load_safely(self.folder / OPTIMIZER / rank_file(owner)))
        return load_progress(self.folder / PROGRESS / rank_file(ranks.rank), ranks.device)

    def _refusal(self, reason: str, config: TrainerConfig) -> CheckpointError:
        model = f"--model {self.folder}"
        if config.train_type == "lora":
            model = "merge its adapter into the model (peft's merge_and_unload), --model of that"
        return CheckpointError(
            f"{self.folder} {reason}. To start a new run from its weights: {model}, without "
            "--resume_from_checkpoint."
        )


def find_checkpoint(config: TrainerConfig, ranks: Ranks) -> Resume | None:
    """Resolve `--resume_from_checkpoint`, on rank 0 for all; none: a new run."""
    choice = config.resume_from_checkpoint
    if choice is None:
        return None
    if choice == LATEST:
        saved = checkpoints_in(Path(config.output_dir)) if ranks.is_main else []
        newest = from_main(str(saved[-1]) if saved else None, ranks)
        if newest is None:
            LOG.info("no checkpoint in %s yet: starting a new run", config.output_dir)
            return None
        choice = newest
    return open_checkpoint(Path(choice))


def open_checkpoint(folder: Path) -> Resume:
    """Read a checkpoint's list of files and check that they are there."""
    try:
        state = json.loads((folder / STATE_JSON).read_text(encoding="utf-8"))
        files, found_format = state["files"], state["format"]
    except FileNotFoundError:
        raise CheckpointError(_missing(folder)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / STATE_JSON} cannot be read ({type(error).__name__}: {error}); resume from "
            "another checkpoint"
        ) from None
    if found_format != FORMAT:
        raise CheckpointError(
            f"{folder} has format {found_format}, this version reads {FORMAT}; resume with the "
            "version that wrote it"
        )
    for name, size in files.items():
        path = folder / name
        actual = path.stat().st_size if path.is_file() else None
        if actual != size:
            problem = "is missing" if actual is None else f"has {actual} bytes of {size}"
            raise CheckpointError(
                f"{folder} is not whole: {name} {problem}. Copy it again, or resume from another "
                "checkpoint"
            )
    return Resume(folder, state)


def _missing(folder: Path) -> str:
    near = checkpoints_in(folder) or checkpoints_in(folder.parent)
    hint = f" There are: {', '.join(str(path) for path in near)}." if near else ""
    return (
        f"--resume_from_checkpoint {folder} is not a checkpoint: it has no {STATE_JSON}.{hint} "
        f"Give a checkpoint-N folder, or {LATEST} for the newest in --output_dir"
    )


def _changed(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for option in dataclasses.fields(TrainerConfig):
        name = option.name
        free = name in _FREE or option.metadata["group"] in _FREE_GROUPS
        if (free and name not in _HELD) or name not in before:
            continue
        if before[name] != now[name]:
            yield f"--{name} {_spelled(before[name])} -> {_spelled(now[name])}"


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
