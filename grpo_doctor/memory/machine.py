"""The cards and hosts that a launch gets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """The cards and hosts that a launch gets."""

    card_bytes: int
    cards_per_node: int
    nodes: int = 1
    host_bytes: int | None = None
    server_card_bytes: int | None = None
    vllm_version: str | None = None
