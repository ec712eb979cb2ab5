"""How long a rank waits for its data: a replay of the queue between loader processes and rank.

Batch i goes to loader process i modulo their number, and the rank takes batches in order, as
PyTorch's DataLoader does (https://docs.pytorch.org/docs/stable/data.html). A process begins a batch
when it is done with its last one and the rank has taken batch i - processes x prefetch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
