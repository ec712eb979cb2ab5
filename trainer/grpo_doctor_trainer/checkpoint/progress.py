"""How far a run has come: what a checkpoint holds of a rank besides weights and optimizer."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from grpo_doctor_trainer.data.experience import Experience, ImageFeatures, TokenBatch
from grpo_doctor_trainer.data.feed import Feed
from grpo_doctor_trainer.logs.metrics import best_of

if TYPE_CHECKING:
    from grpo_doctor_trainer.logs.metrics import Evaluated, Metrics
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
    """Gives this rank's progress and random states as tensors, numbers and texts alone."""
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
    """Makes the progress that `to_plain` wrote and sets this process's random states.

    Args:
        plain: what was read.
        device: where the loop trains.
        layout: of a vision-language model's inputs.
    """
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
    """Gives a tensor with memory of its own, anything else as it is.

    torch.save writes the whole memory that a view looks at.
    """
    if not torch.is_tensor(value):
        return value
    value = value.detach()
    owns_memory = value.untyped_storage().nbytes() == value.nbytes
    return value if owns_memory else value.clone()


def _feed(plain: dict[str, Any], device: torch.device, layout: VisionLayout | None) -> Feed:
    experience = dict(plain["experience"])
    tokens = dict(experience.pop("tokens"))
    images = tokens.pop("images")  # stay in host memory
    if images is not None:
        assert layout is not None
        images = ImageFeatures(**images, layout=layout)
    batch = TokenBatch(**_moved(tokens, device), images=images)
    return Feed(
        Experience(tokens=batch, **_moved(experience, device)), plain["order"], plain["size"]
    )


def _moved(values: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        name: value.to(device) if torch.is_tensor(value) else value
        for name, value in values.items()
    }


def _random_states() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    inner = numpy_state["state"]
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "python": [version, list(numbers), gauss],
        "numpy": {
            "key": torch.from_numpy(inner["key"].astype(np.int64)),
            "pos": int(inner["pos"]),
            "has_gauss": int(numpy_state["has_gauss"]),
            "gauss": float(numpy_state["gauss"]),
        },
    }


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    saved = states["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": saved["key"].numpy().astype(np.uint32), "pos": saved["pos"]},
            "has_gauss": saved["has_gauss"],
            "gauss": saved["gauss"],
        }
    )
