"""Rollout: completions for prompts, behind one narrow interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.data.experience import TokenBatch


OnEnded: TypeAlias = Callable[[Mapping[int, list[int]]], None]
"""Called with the tokens of completions that have ended, by their number among the prompts, and now
and then with none while the others are generated. It must not take long."""


@dataclass(frozen=True)
class Completions:
    """What a rollout gives.

    Attributes:
        tokens: prompts and completions, on the training device.
        logprobs: [completions, completion length] float32, of each token as the engine sampled it,
            after temperature and the other sampling options; none where the trainer's own forward
            pass gives the same. Whatever at padding.
    """

    tokens: TokenBatch
    logprobs: torch.Tensor | None


class RolloutEngine(Protocol):
    """Something that completes prompts with the policy's current weights.

    Attributes:
        shares_weights: whether it reads the trained weights themselves, so that they have to stay
            on the device while it runs.
    """

    shares_weights: bool

    def sync(self) -> None:
        """Takes over the policy's weights, as phase `sync`; nothing to do where they are shared."""

    def awake(self) -> AbstractContextManager[None]:
        """Holds the engine ready to generate: wakes it, and puts it to sleep at the end.

        Waking and sleeping are phase `offload`. Called inside `Offload.during_rollout`.
        """

    def generate(self, prompts: PromptBatch, on_ended: OnEnded | None = None) -> Completions:
        """Makes one completion per entry of `prompts`; called inside phase `rollout`.

        Args:
            prompts: of this rank.
            on_ended: is given completions before all have ended, where the engine can say so.
        """

    def close(self) -> None:
        """Ends what the engine started: processes, threads, connections. Can be called twice."""
