"""Few of many without losing an outlier, and means of what is known."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray


def slowest_of_each(values: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Rows of the largest value in each of at most `limit` buckets, ascending; NaN is smallest."""
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), limit + 1).astype(np.intp)
    finite = np.nan_to_num(values, nan=-1.0)
    pairs = itertools.pairwise(edges.tolist())
    return np.array([first + finite[first:end].argmax() for first, end in pairs], dtype=np.intp)


def known_mean(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """The mean of what is known; NaN where nothing is."""
    is_known = np.isfinite(values)
    count = is_known.sum(axis=axis)
    total = np.where(is_known, values, 0.0).sum(axis=axis)
    mean: NDArray[np.float64] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean
