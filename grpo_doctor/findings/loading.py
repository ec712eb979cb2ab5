"""What the loaders of a run did, as far as they timed themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.findings.signals import Signal, sampled
from grpo_doctor.findings.view import RunView, integer
from grpo_doctor.whatif.models.loading import waits_for_data

LOADER_COUNTERS = "dataload/*_s"
PARTS = ("read_s", "process_s", "tokenize_s", "join_s")
LOADER_TIMES: Signal = sampled(
    "dataload/read_s",
    "a counter with the seconds spent on reading a batch's images, like dataload/process_s and "
    "dataload/tokenize_s; the bundled trainer's loaders record them",
)
# The numbers of loader processes that are advised, in turn; beyond that the data is the problem.
TARGETS = (1, 2, 4, 8)
# Where nobody knows what one needs. The documentation of most frameworks says 4 to 8.
USUAL = 4
# Of the rest of the step, that loaders may take: batches differ, and so do steps.
SPARE = 0.8
# A replay of the loader as it was must come this near to what was waited, as a share of the step.
_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Loading:
    """Seconds of one loader process per step, by part; mean over the steps and ranks."""

    parts: dict[str, float]

    @property
    def effort_s(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    def share(self, *parts: str) -> float:
        """Return what some parts are of it."""
        total = self.effort_s
        return sum(self.parts[part] for part in parts) / total if total else 0.0


def loading(view: RunView) -> Loading | None:
    """Return what was recorded; None without loaders that time themselves.

    A step that fetched nothing, because an earlier rollout still feeds it, counts with zero.
    """
    tables = {part: view.counted(f"dataload/{part}") for part in PARTS}
    if not any(np.isfinite(table).any() for table in tables.values()):
        return None
    return Loading({part: float(np.nan_to_num(table).mean()) for part, table in tables.items()})


def replayed_wait(view: RunView, *, workers: int, prefetch: int) -> float | None:
    """Seconds per step that would be waited for data with another loader, by a replay of its queue.

    None without recorded seconds of each batch, or where the loader as it was can't be replayed.
    """
    now = integer(view.now("dataload.num_workers"))
    ahead = integer(view.now("dataload.prefetch_factor")) or 2
    # Of one loader process, shape (used steps, ranks).
    parts = (np.nan_to_num(view.counted(f"dataload/{part}")) for part in PARTS)
    recorded: NDArray[np.float64] = sum(parts, start=np.zeros(1))
    if now is None or not recorded.any():
        return None
    unchanged = _mean_wait(view, recorded, now, ahead)
    if abs(unchanged - view.seconds("dataload")) > _TOLERANCE * view.step_s:
        return None
    return _mean_wait(view, recorded, workers, prefetch)


def enough_workers(view: RunView, workers: int | None) -> int | None:
    """The fewest processes of `TARGETS`, more than there are, that have the time for a step's
    prompts; None where more are not advised."""
    more = [n for n in TARGETS if n > (workers or 0)]
    loads, rest = loading(view), view.step_s - view.seconds("dataload")
    if loads is None or not rest:
        return next((n for n in more if n >= USUAL), None)
    return next((n for n in more if loads.effort_s / n <= SPARE * rest), more[-1] if more else None)


def _mean_wait(view: RunView, efforts: NDArray[np.float64], workers: int, prefetch: int) -> float:
    waits = view.analysis.phase_work("dataload")
    rests = np.maximum(0.0, view.analysis.step_seconds[:, None] - waits)
    ranks = [
        _of_rank(efforts[:, rank], rests[:, rank], workers, prefetch)
        for rank in range(efforts.shape[1])
    ]
    return float(np.mean(ranks))


def _of_rank(
    efforts: NDArray[np.float64], rests: NDArray[np.float64], workers: int, prefetch: int
) -> float:
    fetched = np.flatnonzero(efforts > 0)
    if not len(fetched):
        return 0.0
    # A batch may feed several steps: what passes until the next one is asked for is one rest.
    between = np.add.reduceat(rests, fetched)
    waits = waits_for_data(efforts[fetched], between, workers=workers, prefetch=prefetch)
    return float(waits.sum() / len(efforts))
