"""Rollout: completions for prompts, behind one narrow interface."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch


@dataclass(frozen=True)
class Completions:
    """The result of a rollout.

    Attributes:
        tokens: prompts and completions, on the training device.
        logprobs: [completions, completion length] float32, of each token as the engine sampled it,
            after temperature and the other sampling options; None where the trainer's own forward
            pass gives the same. Values at padding are undefined.
    """

    tokens: TokenBatch
    logprobs: torch.Tensor | None


class RolloutEngine:
    """Something that completes prompts with the policy's current weights.

    Attributes:
        shares_weights: whether it reads the trained weights themselves, so that they have to stay
            on the device while it runs.
    """

    shares_weights = False

    def sync(self) -> None:
        """Load the policy's weights, as phase `sync`; nothing to do where they are shared."""

    def awake(self) -> AbstractContextManager[None]:
        """Wake the engine and put it to sleep at the end, as phase `offload`.

        Called inside `Offload.during_rollout`.
        """
        return nullcontext()

    def generate(self, prompts: PromptBatch) -> Completions:
        """Make one completion per entry of `prompts`; called inside phase `rollout`."""
        raise NotImplementedError

    def close(self) -> None:
        """End what the engine started: processes, threads, connections. Can be called twice."""


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the process's global generators, and restore their states afterwards.

    vLLM in a rank draws from these: a seed per request would do the same, but makes it sample the
    requests one by one.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
