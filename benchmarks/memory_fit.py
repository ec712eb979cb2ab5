"""Fits the calibrated factors of the ledger, on all points or on those of other sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchmarks.memory_points import Point
from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.facts import Calibration, calibration
from grpo_doctor.memory.ledger import Ledger

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


def predicted_bytes(point: Point, ledger: Ledger) -> int:
    """The ledger's peak as the record's instrument would have shown it."""
    entries = ledger.train.peak.components
    left_out = _OUTSIDE_THE_ALLOCATOR if point.reserved_only else frozenset()
    return sum(entry.bytes for entry in entries if entry.name not in left_out)


def error(point: Point, factors: Calibration) -> float:
    """Predicted over measured, less 1."""
    assert point.measured_bytes is not None
    ledger = ledger_of(point.setup, factors)
    return predicted_bytes(point, ledger) / point.measured_bytes - 1


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
        for point in points:
            if point.source == source:
                ledgers[point.identity] = ledger_of(point.setup, factors)
    return ledgers


def _loss(points: Sequence[Point], factors: Calibration) -> float:
    return sum(min(abs(error(point, factors)), _CAP) for point in points) / max(1, len(points))
