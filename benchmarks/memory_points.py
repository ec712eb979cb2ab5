"""Reads records of measured memory: what of them can be scored, and why the rest can't."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory_records import UnreadableError
from benchmarks.memory_setups import setup_of
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.memory.setup import GIB, Setup

NOT_MEASURED = frozenset(
    {
        "vendor_derived_not_measured",
        "vendor_breakdown",
        "vendor_minimum",
        "upper_bound",
        "author_estimate",
        "maintainer_measured_avg",  # a mean over the run is not a peak
        "max_context_boundary",
    }
)
RESERVED_ONLY = frozenset(
    {"max_reserved", "measured", "measured_peak_fwd_bwd", "max_memory_allocated"}
)
"""Read from PyTorch's allocator: without the CUDA context and NCCL's buffers."""
CENSORED = 0.93
"""From this share of the card on a measurement says only that it fitted: the allocator fills it."""

_LARGER = 1.05
"""More than that was measured on a card that the record does not name."""


@dataclass(frozen=True)
class Point:
    """A record that can be scored: by its bytes, by whether it fitted, or both."""

    record: Mapping[str, Any]
    setup: Setup
    measured_bytes: float | None
    fitted: bool | None
    """What its outcome says; None where only a number is given."""
    reserved_only: bool

    @property
    def identity(self) -> str:
        """The record's id."""
        return str(self.record["id"])

    @property
    def source(self) -> str:
        """The repository at a commit, or the address: files of one commit share their authors."""
        text = str(self.record["source"]).split(" (")[0]
        return text if text.startswith("http") else text.split(":", 1)[0]

    @property
    def group(self) -> str:
        """GRPO, or training of another kind."""
        return "GRPO" if self.setup.is_grpo else "training"


def read(path: Path) -> tuple[list[Point], list[tuple[str, str]]]:
    """All records that can be scored, and of the others (id, reason)."""
    points, unreadable = [], []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        identity = f"line {number}"
        try:
            record = json.loads(line)
            identity = str(record["id"])
            points.append(point_of(record))
        except (UnreadableError, GrpoDoctorError) as error:
            unreadable.append((identity, str(error).split(". ")[0]))
        except (ValueError, KeyError, TypeError) as error:
            unreadable.append((identity, f"not in the format: {error!r}"))
    return points, unreadable


def point_of(record: Mapping[str, Any]) -> Point:
    """One record as a point.

    Raises:
        UnreadableError: it is not a measurement, or its configuration lacks what memory depends on.
        UnknownModelError: its model's shape is not known.
    """
    config, measured = record["config"], record["measured"]
    kind, outcome, number = (measured.get(key) for key in ("kind", "outcome", "gb_per_gpu"))
    if kind in NOT_MEASURED:
        raise UnreadableError(f"no measurement of a peak: {kind}")
    if measured.get("where") == "HOST":
        raise UnreadableError("memory of the host")
    if outcome not in ("fits", "OOM") and number is None:
        raise UnreadableError(f"neither a number nor an outcome: {outcome}")
    setup = setup_of(config, measured.get("capacity_gb"), str(record["source"]),
                     str(record.get("notes")))  # fmt: skip
    size = None if number is None else float(number) * GIB
    censored = size is not None and CENSORED <= size / setup.card_bytes <= _LARGER
    return Point(
        record,
        setup,
        None if censored else size,
        {"fits": True, "OOM": False}.get(str(outcome), True if censored else None),
        kind in RESERVED_ONLY,
    )
