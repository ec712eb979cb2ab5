"""Version facts and calibrated factors: numbers in files next to this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from grpo_doctor.knobs.model import version_of


@cache
def shipped(name: str) -> Mapping[str, Any]:
    """A JSON file of this package."""
    content: Mapping[str, Any] = json.loads(
        files("grpo_doctor.memory").joinpath(name).read_text("utf-8")
    )
    return content


def facts() -> Mapping[str, Any]:
    """What source code and measurements of others say, each with where it was read."""
    return shipped("memory_facts.json")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors fitted on measured jobs; each has a physical meaning.

    `fragmentation_*` is what PyTorch's allocator reserves over what is allocated, of what comes
    and goes within a step; `_pressed` where the card is full, so that cached blocks are given
    back. `*_row_tokens` describe instruction data that was not packed and
    whose rows have unknown lengths, and `usual_share` is the mean row of a rollout over the
    longest that is allowed. `communicator` is GiB per NCCL group after the first.
    `spread_*` are one standard deviation.
    """

    fragmentation_fixed: float
    fragmentation_varied: float
    fragmentation_expandable: float
    fragmentation_pressed: float
    usual_row_tokens: float
    longest_row_tokens: float
    usual_share: float
    communicator: float
    spread_states: float
    spread_training: float
    spread_activations: float
    spread_unknown_rows: float
    spread_rollout_rows: float
    spread_engine: float
    spread_overhead: float


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """The factors that ship."""
    return Calibration(**shipped("calibration.json"))


def holds_since(version: str | None, since: str) -> bool:
    """Whether a fact that begins with `since` holds; an unknown version counts as the newest."""
    number, begins = version_of(version), version_of(since)
    return number is None or begins is None or number >= begins


def latest(steps: list[list[Any]], version: str | None) -> Any:
    """The last value of (since, value) steps that holds for this version."""
    return [value for since, value in steps if holds_since(version, since)][-1]
