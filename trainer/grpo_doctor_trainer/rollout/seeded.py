"""Sampling that is repeatable and leaves no trace in the random states of a run.

vLLM in a rank draws from the process's global generators: a seed per request would do the same, but
makes it sample the requests one by one.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Lets what draws from the process's global generators draw from this seed.

    The generators go on afterwards as if nothing had been drawn.

    Args:
        seed: of Python's, NumPy's and torch's generators.
        device: whose generator is one of them.
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
