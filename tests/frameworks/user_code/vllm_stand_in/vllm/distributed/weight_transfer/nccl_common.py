"""The trainer's end of the NCCL group: here nobody is at the other end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def trainer_init(init_info: dict[str, Any]) -> SimpleNamespace:
    """A group of one; with what `WeightTransferClient.destroy` sets."""
    del init_info
    return SimpleNamespace(group=SimpleNamespace(store=None, socket=None))
