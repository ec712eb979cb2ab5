"""Loader processes: the step does not wait for what they load during its other phases.

visible = max(0, load / workers - the rest of the step), where the load is what one process needs
for a step's prompts. It is recorded by loaders that time themselves; else, without processes, it
is all that is seen, and with w processes that never catch up, w steps. The rest shrinks with every
other change, so loading is replayed last. Processes need cores: a step is not shorter than what
its host has to compute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.sampled import highest_mean, mean_over, series_named
from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.step_model import Edit, Hide

# So often a full queue must have been emptied and filled before it stands as it will for ever.
_ROUNDS = 20


def waits_for_data(
    efforts: Sequence[float] | NDArray[np.float64],
    rests: Sequence[float] | NDArray[np.float64],
    *,
    workers: int,
    prefetch: int = 2,
) -> NDArray[np.float64]:
    """Return seconds waited for each batch once the run is under way, shape (batches,).

    Batch i goes to loader process i modulo their number, and the rank takes batches in order, as
    PyTorch's DataLoader does (https://docs.pytorch.org/docs/stable/data.html). A process begins a
    batch when it is done with its last one and the rank has taken batch i - processes x prefetch.
    The batches are gone through again and again until the queue no longer remembers its start.

    Args:
        efforts: seconds one process needs for each batch.
        rests: seconds the rank works between taking batch i and asking for batch i + 1.
        workers: loader processes; with 0 the rank makes the batch itself.
        prefetch: batches that each process may have ready.
    """
    count = len(efforts)
    if workers < 1 or not count:
        return np.asarray(efforts, dtype=np.float64)
    ahead = workers * max(1, prefetch)
    cycles = 1 + math.ceil(_ROUNDS * ahead / count)
    taken_at = [0.0] * (cycles * count)
    free = [0.0] * workers
    waits, now = np.zeros(count), 0.0
    for batch in range(cycles * count):
        home, index = batch % workers, batch % count
        begin = max(free[home], taken_at[batch - ahead] if batch >= ahead else 0.0)
        free[home] = begin + efforts[index]
        waits[index] = max(0.0, free[home] - now)
        taken_at[batch] = now = max(now, free[home])
        now += rests[index]
    return waits


PARTS = ("dataload/read_s", "dataload/process_s", "dataload/tokenize_s", "dataload/join_s")
# Processes that share a memory and a disk are a little slower each than one alone.
_CAUTION = 1.25
_ERROR = 0.15
_UNEVEN_ERROR = 0.30
_PREFETCH = 2  # PyTorch's default
_LEAST_BATCHES = 5


def _workers(case: Case) -> Effect:
    before, after = case.knob("dataload.num_workers"), case.after.get("dataload.num_workers")
    if after is None:
        return _prefetch(case)
    if before is None:
        raise UnsupportedError("how many loader processes this run has was not recorded")
    effort = load_s(case, before)
    if effort is None:
        raise UnsupportedError(
            "how long a loader process takes for a step's prompts was not recorded"
        )
    if after == 0:
        raise UnsupportedError(
            "loading in the rank itself was not measured here; it makes no step shorter"
        )
    busy, cores = _computing(case)
    change = Hide("dataload", effort, after, busy, cores)
    slower = replace(change, effort_s=_CAUTION * effort)
    assumes = (
        f"{effort:.3g} s of loading per step, done by {after} process{'es' * (after != 1)} per "
        "rank during the rest of it"
    )
    return Effect((change,), assumes, _ERROR, at_least=(slower,))


def _prefetch(case: Case) -> Effect:
    """More batches ahead even out slow and fast ones; the mean load stays what it is."""
    workers = case.knob("dataload.num_workers")
    if not workers:
        return NOTHING
    before, after = (
        knobs["dataload.prefetch_factor"] or _PREFETCH for knobs in (case.before, case.after)
    )
    efforts, rest_s = _batches(case), case.model.step_s - case.work_s("dataload")
    if len(efforts) < _LEAST_BATCHES:
        raise UnsupportedError("how long a loader process takes for each batch was not recorded")
    rests = [rest_s] * len(efforts)
    now, then = (
        float(waits_for_data(efforts, rests, workers=workers, prefetch=ahead).mean())
        for ahead in (min(before, len(efforts)), min(after, len(efforts)))  # no run has more
    )
    if not now:
        return NOTHING
    assumes = f"batches of {min(efforts):.3g} to {max(efforts):.3g} s come in any order"
    return Effect((Edit(("dataload",), then / now),), assumes, _UNEVEN_ERROR)


def _batches(case: Case) -> list[float]:
    """Return seconds of loading of each batch, on the rank that loads longest."""
    by_rank: dict[int | None, list[list[float]]] = {}
    for name in PARTS:
        for series in series_named(case.analysis.trace, name):
            by_rank.setdefault(series.rank, []).append(np.nan_to_num(series.values).tolist())
    sums = [[sum(batch) for batch in zip(*columns)] for columns in by_rank.values()]
    return max(sums, key=sum, default=[])


def load_s(case: Case, workers: int) -> float | None:
    """Return seconds that one loader process needs for a step's prompts; None where unknown."""
    recorded = [case.per_step(name) for name in PARTS]
    if any(part is not None for part in recorded):
        return sum(part or 0.0 for part in recorded)
    visible_s = case.work_s("dataload")
    if workers == 0:
        return visible_s
    # Processes that leave something to wait for have worked throughout the step.
    return workers * case.model.step_s if visible_s > 0.02 * case.model.step_s else None


def _computing(case: Case) -> tuple[float, float]:
    """Seconds per step for which all cores of the busiest host compute for the job, and how many
    cores that are. What others compute on the host is not counted: it may go."""
    inside, hosts = case.analysis.used_windows, dict[str, float]()
    cores = highest_mean(case.analysis.trace, "rank.processors", inside)
    for series in series_named(case.analysis.trace, "rank.cpu"):
        mean = mean_over(series, inside)
        hosts[series.host] = hosts.get(series.host, 0.0) + (mean or 0.0)
    if not cores or not hosts:
        return 0.0, float("inf")
    return max(hosts.values()) / 100 / cores * case.model.step_s, cores


MODELS = (
    CostModel("loader processes", ("dataload.num_workers", "dataload.prefetch_factor"), _workers),
)
