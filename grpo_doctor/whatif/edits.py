"""Changes to a step model: some phases' work, on some ranks, times a factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.rows import CODES, COLUMNS


@dataclass(frozen=True, slots=True)
class Edit:
    """Multiplies the work of `phases` on `ranks` (None: all) by `factor`; 0 removes it."""

    phases: tuple[str, ...]
    factor: float
    ranks: tuple[int, ...] | None = None


def without(*phases: str) -> Edit:
    """Removes phases from every rank."""
    return Edit(phases, 0.0)


def factors(edits: Iterable[Edit], ranks: Sequence[int]) -> NDArray[np.float64]:
    """The product of all edits, shape (ranks, COLUMNS)."""
    result = np.ones((len(ranks), COLUMNS))
    for edit in edits:
        rows = [i for i, rank in enumerate(ranks) if edit.ranks is None or rank in edit.ranks]
        columns = [CODES[phase] for phase in edit.phases]
        result[np.ix_(rows, columns)] *= edit.factor
    return result
