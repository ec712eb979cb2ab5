"""The state of a run in a checkpoint: of the optimizer, and how far each rank has come."""

from __future__ import annotations

import dataclasses
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_trainer.data.experience import Experience, Feed, ImageFeatures, TokenBatch
from grpo_doctor_trainer.engine import Engine, stepped_optimizer
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.logs.metrics import Metrics
from grpo_doctor_trainer.model.vision import VisionLayout


@dataclass(frozen=True)
class Progress:
    """Where the loop stands between two steps.

    Attributes:
        number: steps done.
        feed: what is left of the rollout, if its steps are not all done.
        metrics: the metrics of that rollout.
        log: the sums of `StepLog`.
    """

    number: int = 0
    feed: Feed | None = None
    metrics: Metrics = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)


# What a file of a rank may hold; torch refuses to load anything else from it.
torch.serialization.add_safe_globals(
    [Progress, Feed, Experience, TokenBatch, ImageFeatures, VisionLayout]
)


def save_progress(progress: Progress, path: Path) -> None:
    """Write this rank's progress and random states."""
    if progress.feed is not None and progress.feed.empty:
        progress = dataclasses.replace(progress, feed=None)
    states = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": random.getstate(),
    }
    torch.save({"progress": progress, "random": states}, path)


def load_progress(path: Path, device: torch.device) -> Progress:
    """Read what `save_progress` wrote, and set this process's random states."""
    saved = load_safely(path, lambda held, at: held if at == "cpu" else held.cuda(device.index))
    states = saved["random"]
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    random.setstate(states["python"])
    progress: Progress = saved["progress"]
    return progress


def load_safely(path: Path, place: Any = "cpu") -> Any:
    """Read a file of a rank without running code from it."""
    try:
        return torch.load(path, map_location=place, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is damaged ({str(error).splitlines()[0][:200]}); resume from another "
            "checkpoint"
        ) from error


def is_replicated(engine: Engine) -> bool:
    """Whether every rank holds the same state: AdamW steps the model's own weights."""
    return stepped_optimizer(engine) is engine.optimizer


def capture(engine: Engine) -> dict[str, Any]:
    """Return this rank's state, without copying it where that can be avoided.

    DeepSpeed's own checkpoints are pickles of its classes, which cannot be read safely. `masters`
    are the tensors that AdamW steps (of float32, this rank's part, in ZeRO's flat layout), empty
    where these are the model's weights; `state` has AdamW's values for each of them.
    """
    if getattr(engine.optimizer, "swap_optimizer", False):
        raise CheckpointError(
            "the optimizer state is in DeepSpeed's own files (offload_optimizer to nvme) and "
            "cannot be saved; use --save_only_model true, or offload to cpu"
        )
    masters, states = _stepped(engine), stepped_optimizer(engine).state
    return {
        "masters": [] if is_replicated(engine) else [_alone(master) for master in masters],
        "state": [
            {name: _alone(value) for name, value in states.get(master, {}).items()}
            for master in masters
        ],
    }


def _alone(value: Any) -> Any:
    """Return a tensor with memory of its own: torch.save writes all that a view looks at."""
    if not torch.is_tensor(value):
        return value
    value = value.detach()
    return value if value.untyped_storage().nbytes() == value.nbytes else value.clone()


@torch.no_grad()
def restore(engine: Engine, saved: dict[str, Any]) -> None:
    """Put back what `capture` gave, into an engine made with the same options."""
    masters, states = _stepped(engine), stepped_optimizer(engine).state
    copies = saved["masters"] or masters
    shapes = [tuple(copy.shape) for copy in copies]
    if shapes != [tuple(master.shape) for master in masters] or len(saved["state"]) != len(shapes):
        raise CheckpointError(
            "the checkpoint's optimizer state belongs to other trained weights than this model's; "
            "resume with the model and the options of the run that wrote it"
        )
    for master, copy, values in zip(masters, copies, saved["state"]):
        if copy is not master:
            master.copy_(copy)
        states[master] = _like(states.get(master, {}), values, master.device)


def _stepped(engine: Engine) -> list[torch.Tensor]:
    # ZeRO-3 hands AdamW one flat part at a time, so between steps its groups are empty.
    flat: list[torch.Tensor] | None = getattr(
        engine.optimizer, "fp32_partitioned_groups_flat", None
    )
    if flat is not None:
        return flat
    return [w for group in stepped_optimizer(engine).param_groups for w in group["params"]]


def _like(current: dict[str, Any], values: dict[str, Any], device: torch.device) -> dict[str, Any]:
    restored = {}
    for name, value in values.items():
        old = current.get(name)
        if torch.is_tensor(old) and torch.is_tensor(value) and old.shape == value.shape:
            restored[name] = old.copy_(value)  # keeps pinned host memory pinned
        else:  # AdamW's step counters stay on the CPU
            restored[name] = value.to(device) if torch.is_tensor(value) and value.dim() else value
    return restored
