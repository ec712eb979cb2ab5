"""Tensor-parallel groups: neighbouring ranks that are one engine and see one list of requests."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.ranks.group import Ranks

_SEEDS = 2**31


class EngineGroup:
    """The ranks that share this rank's engine; itself alone without tensor parallelism."""

    def __init__(self, size: int, ranks: Ranks) -> None:
        self.size = size
        self.place = ranks.rank % size
        self._group: Any = None
        if size > 1:
            # new_group is a collective: every rank makes the groups of all.
            for first in range(0, ranks.world_size, size):
                members = list(range(first, first + size))
                group = dist.new_group(members, backend="gloo")
                if ranks.rank in members:
                    self._group = group

    def share(self, requests: list[Any]) -> tuple[list[Any], slice, int]:
        """Joins the requests of all members.

        Returns:
            all requests, in the same order on every member; which of them are this rank's; and a
            seed, the same on every member, drawn from torch's generator.
        """
        seed = int(torch.randint(_SEEDS, ()))
        if self.size == 1:
            return requests, slice(0, len(requests)), seed
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, (seed, requests), group=self._group)
        first = sum(len(theirs) for _, theirs in every[: self.place])
        joined = [request for _, theirs in every for request in theirs]
        return joined, slice(first, first + len(requests)), every[0][0]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Lets the engine, which draws from the process's global generators, draw from this seed.

    A seed per request would do the same, but makes vLLM sample the requests one by one. The
    generators go on afterwards as if nothing had been drawn.
    """
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
