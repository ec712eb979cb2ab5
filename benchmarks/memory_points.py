"""What jobs of others were measured to take, and the calibrated factors fitted on them.

Each line of `memory_points.jsonl` is a job in the words of `Setup`, with who measured it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.facts import Calibration, calibration
from grpo_doctor.memory.ledger import Ledger
from grpo_doctor.memory.models import model_shape
from grpo_doctor.memory.setup import GIB, RolloutEngine, Setup

POINTS = Path(__file__).with_name("memory_points.jsonl")
GRID: dict[str, tuple[float, ...]] = {
    "fragmentation_fixed": (1.05, 1.1, 1.15, 1.2, 1.3),
    "fragmentation_varied": (1.15, 1.25, 1.3, 1.35, 1.45),
    "fragmentation_expandable": (1.05, 1.1, 1.2),
    "communicator": (0.6, 0.8, 1.0, 1.2, 1.4),
    "usual_row_tokens": (100, 150, 200, 300),
    "longest_row_tokens": (800, 1000, 1200, 1500),
}
"""Each within what its physical meaning allows."""
_OUTSIDE_THE_ALLOCATOR = frozenset({"CUDA context", "NCCL buffers"})
_CAP = 0.5
"""One wild record weighs no more than this error: many are rounded, some are of another run."""


@dataclass(frozen=True)
class Point:
    """A job that can be scored: by its bytes, by whether it fitted, or both.

    Attributes:
        source: a repository at a commit, or an address; files of one commit share their authors.
        framework: with the version that its authors used, where that matters.
        quality: A to C, how well the source documents it.
        gib: on the most-used card. From 93% of a card on nothing but `fitted` is known: there
            PyTorch's allocator fills it.
        reserved_only: read from PyTorch's allocator, without the CUDA context and NCCL's buffers.
        alloc_gib: what `alloc ghost` of the alloc package 0.0.16 says, told a model's size, width,
            batch and length, which is all it takes.
    """

    id: str
    source: str
    framework: str
    quality: str
    setup: Setup
    gib: float | None = None
    fitted: bool | None = None
    reserved_only: bool = False
    alloc_gib: float = 0.0

    @property
    def measured_bytes(self) -> float | None:
        """What was measured; None where only an outcome is known."""
        return None if self.gib is None else self.gib * GIB

    @property
    def group(self) -> str:
        """GRPO, or training of another kind."""
        return "GRPO" if self.setup.is_grpo else "training"


def read(path: Path = POINTS) -> tuple[list[Point], list[str]]:
    """Return all points, and why the other records that were found cannot be scored."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    points = [Point(**row | {"setup": _setup(row["setup"])}) for row in rows if "setup" in row]
    return points, [row["unscored"] for row in rows if "unscored" in row]


def _setup(row: dict[str, Any]) -> Setup:
    named = {
        "model": model_shape(row["model"]),
        "beside": tuple(map(model_shape, row.get("beside", ()))),
        "rollout_engine": RolloutEngine(**row.get("rollout_engine", {})),
    }
    return Setup(**row | named)


def predicted_bytes(point: Point, ledger: Ledger) -> int:
    """The ledger's peak as the record's instrument would have shown it."""
    entries = ledger.train.peak.components
    left_out = _OUTSIDE_THE_ALLOCATOR if point.reserved_only else frozenset()
    return sum(entry.bytes for entry in entries if entry.name not in left_out)


def fit(points: Iterable[Point], start: Calibration | None = None) -> Calibration:
    """The factors with the least mean error, found one after the other."""
    measured = [point for point in points if point.measured_bytes is not None]
    best = start or calibration()
    smallest_loss = _loss(measured, best)
    for name, values in GRID.items():
        for value in values:
            trial = replace(best, **{name: value})
            loss = _loss(measured, trial)
            if loss < smallest_loss - 1e-5:
                best, smallest_loss = trial, loss
    return best


def held_out(points: Sequence[Point]) -> dict[str, Ledger]:
    """Each point's ledger with factors fitted on the points of all other sources, by id."""
    ledgers: dict[str, Ledger] = {}
    for source in sorted({point.source for point in points}):
        factors = fit(point for point in points if point.source != source)
        own = (point for point in points if point.source == source)
        ledgers |= {point.id: ledger_of(point.setup, factors) for point in own}
    return ledgers


def _loss(points: Sequence[Point], factors: Calibration) -> float:
    errors = (
        abs(predicted_bytes(p, ledger_of(p.setup, factors)) / (p.measured_bytes or 1) - 1)
        for p in points
    )
    return sum(min(error, _CAP) for error in errors) / max(1, len(points))
