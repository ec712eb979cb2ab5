"""Steps resampled in blocks of neighbors, because they are not independent.

A slow minute of the file system, or completions that grow, spans many steps: their mean is less
sure than that of as many steps by themselves. Blocks are as long as the steps' correlation asks for
(Politis and White 2004, https://doi.org/10.1081/ETC-120028836, for a correlation that falls off
geometrically).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.intervals import Rows

_MOST_CORRELATED = 0.95
_MOST_DRAWN = 4096  # values: a draw of a million steps by themselves takes 3 GB


def neighbor_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what is drawn from: the steps, shape (steps,), or of a long run means over as many
    neighbors each, shape (2049 to 4096,)."""
    size = -(-len(values) // _MOST_DRAWN)
    if size <= 1:
        return values
    starts = np.arange(0, len(values), size)
    means: NDArray[np.float64] = np.add.reduceat(values, starts) / np.diff(
        starts, append=len(values)
    )
    return means


def block_length(values: NDArray[np.float64]) -> int:
    """Return how many neighboring steps to draw together: 1 without correlation between them."""
    centred = values - values.mean()
    spread = float((centred**2).sum())
    correlation = float((centred[1:] * centred[:-1]).sum()) / spread if spread else 0.0
    correlation = min(max(correlation, 0.0), _MOST_CORRELATED)
    pull = (2 * correlation / (1 - correlation**2)) ** (2 / 3)
    return int(np.clip(round((1.5 * len(values)) ** (1 / 3) * pull), 1, len(values) // 4 or 1))


def draw_blocks(count: int, length: int, draws: int, dice: np.random.Generator) -> Rows:
    """Rows of each draw, shape (draws, count): whole blocks, from a circle, so that all steps
    are drawn as often."""
    starts = dice.integers(0, count, (draws, -(-count // length)))
    rows = (starts[:, :, None] + np.arange(length)) % count
    return rows.reshape(draws, -1)[:, :count]
