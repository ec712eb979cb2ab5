"""The state of a run in a checkpoint: of the optimizer, and how far each rank has come."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from typing import Any

import torch

from grpo_doctor_trainer.data.experience import Experience, Feed, ImageFeatures, TokenBatch
from grpo_doctor_trainer.engine import Engine, stepped_optimizer
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.logs.metrics import Evaluated, Metrics, best_of
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

    @property
    def best(self) -> Evaluated | None:
        """The evaluation with the highest reward so far, the first of equals."""
        return best_of(self.log.get("evaluations", ()))


def to_plain(progress: Progress) -> dict[str, Any]:
    """Return this rank's progress and random states as tensors, numbers and texts alone."""
    feed = progress.feed
    return {
        "number": progress.number,
        "feed": None if feed is None or feed.empty else _plain(feed),
        "found": dict(progress.metrics),
        "log": progress.log,
        "random": _random_states(),
    }


def from_plain(
    plain: dict[str, Any], device: torch.device, layout: VisionLayout | None
) -> Progress:
    """Make the progress that `to_plain` wrote and set this process's random states."""
    _set_random_states(plain["random"])
    feed = plain["feed"]
    return Progress(
        number=plain["number"],
        feed=None if feed is None else _feed(feed, device, layout),
        metrics=plain["found"],
        log=plain["log"],
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        parts = (part.name for part in dataclasses.fields(value))
        # The model brings its layout itself.
        return {name: _plain(getattr(value, name)) for name in parts if name != "layout"}
    return with_own_memory(value)


def with_own_memory(value: Any) -> Any:
    """Return a tensor with memory of its own, anything else as it is.

    torch.save writes the whole memory that a view looks at.
    """
    if not torch.is_tensor(value):
        return value
    value = value.detach()
    owns_memory = value.untyped_storage().nbytes() == value.nbytes
    return value if owns_memory else value.clone()


def _feed(plain: dict[str, Any], device: torch.device, layout: VisionLayout | None) -> Feed:
    def moved(values: dict[str, Any]) -> dict[str, Any]:
        return {n: v.to(device) if torch.is_tensor(v) else v for n, v in values.items()}

    experience = dict(plain["experience"])
    tokens = dict(experience.pop("tokens"))
    images = tokens.pop("images")  # stay in host memory
    if images is not None:
        assert layout is not None
        images = ImageFeatures(**images, layout=layout)
    batch = TokenBatch(**moved(tokens), images=images)
    return Feed(Experience(tokens=batch, **moved(experience)), plain["order"], plain["size"])


def _random_states() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": [version, list(numbers), gauss],
    }


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))


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
        "masters": [] if is_replicated(engine) else [with_own_memory(master) for master in masters],
        "state": [
            {name: with_own_memory(value) for name, value in states.get(master, {}).items()}
            for master in masters
        ],
    }


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
