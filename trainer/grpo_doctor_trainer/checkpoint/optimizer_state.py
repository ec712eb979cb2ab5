"""The optimizer's state of one rank, as plain tensors: for plain AdamW and under every ZeRO stage.

DeepSpeed's own checkpoints are pickles of its classes, which cannot be read safely. What its
optimizers know beyond the weights is little and the same for all of them: the tensors that AdamW
steps (of float32, this rank's part, in ZeRO's flat layout), AdamW's state of each, and the loss
scale. With the same number of ranks and the same stage these go back exactly where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.checkpoint.progress import with_own_memory
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.ranks.engine import stepped_optimizer

if TYPE_CHECKING:
    from grpo_doctor_trainer.ranks.engine import Engine

_PLAIN = (bool, int, float)


def is_replicated(engine: Engine) -> bool:
    """Whether every rank holds the same state: AdamW steps the model's own weights."""
    return stepped_optimizer(engine) is engine.optimizer


def capture(engine: Engine) -> dict[str, Any]:
    """Gives this rank's state, without copying it where that can be avoided.

    Returns:
        `masters`: the tensors AdamW steps, none where these are the model's weights; `state`:
        AdamW's values for each of them; `loss_scale`: numbers of float16's loss scaling.

    Raises:
        CheckpointError: DeepSpeed keeps the state in files (`nvme`).
    """
    if getattr(engine.optimizer, "swap_optimizer", False):
        raise CheckpointError(
            "the optimizer state is in DeepSpeed's own files (offload_optimizer to nvme) and "
            "cannot be saved; use --save_only_model true, or offload to cpu"
        )
    masters, states = _stepped(engine), stepped_optimizer(engine).state
    return {
        "masters": [] if is_replicated(engine) else [with_own_memory(master) for master in masters],
        "state": [
            {name: with_own_memory(value) for name, value in states.get(master, {}).items()}
            for master in masters
        ],
        "loss_scale": _loss_scale(engine.optimizer),
    }


@torch.no_grad()
def restore(engine: Engine, saved: dict[str, Any]) -> None:
    """Puts back what `capture` gave, into an engine made with the same options.

    Raises:
        CheckpointError: it belongs to other weights.
    """
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
    for owner in _scale_owners(engine.optimizer):
        for name, value in saved["loss_scale"].items():
            if hasattr(owner, name):
                setattr(owner, name, value)


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
        else:
            # AdamW's step counters stay on the CPU.
            moves = torch.is_tensor(value) and value.dim() > 0
            restored[name] = value.to(device) if moves else value
    return restored


def _loss_scale(optimizer: Any) -> dict[str, float]:
    names = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")
    return {
        name: value
        for owner in _scale_owners(optimizer)
        for name in names
        if isinstance(value := getattr(owner, name, None), _PLAIN)
    }


def _scale_owners(optimizer: Any) -> list[Any]:
    """What may hold the loss scale: of ZeRO a scaler, without ZeRO a config or the optimizer."""
    parts = ("loss_scaler", "loss_scale_config")
    return [optimizer, *(getattr(optimizer, part, None) for part in parts)]
