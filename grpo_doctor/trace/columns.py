"""Growing span columns: rows in, one `Spans` out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.model import Spans

DTYPES: dict[str, Any] = {
    "kind": np.uint8,
    "process": np.int32,
    "thread": np.int32,
    "depth": np.int16,
    "name": np.int32,
    "args": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "value": np.float64,
    "open": np.bool_,
}


def spans_from(columns: dict[str, Any]) -> Spans:
    """One block of columns, each a sequence of one length, in any order; see `in_order`."""
    return Spans(**{name: np.asarray(columns[name], dtype=kind) for name, kind in DTYPES.items()})


def join(blocks: list[Spans]) -> Spans:
    """Several blocks as one, in the model's order."""
    if not blocks:
        return spans_from({name: [] for name in DTYPES})
    if len(blocks) == 1:
        return in_order(blocks[0])
    return in_order(
        Spans(**{name: np.concatenate([getattr(b, name) for b in blocks]) for name in DTYPES})
    )


def in_order(spans: Spans) -> Spans:
    """Rows by process, then start, then longest first, so that a parent precedes its children;
    where both are of one length, by depth."""
    keys = (spans.depth, -spans.end_ns, spans.start_ns, spans.process)
    order: NDArray[np.intp] = np.lexsort(keys)
    if np.array_equal(order, np.arange(len(order))):
        return spans
    return spans.select(order)


class Interned(dict[Any, int]):
    """Values to dense ids, in the order of first use: `ids[value]` is a new one if it has to be."""

    def __missing__(self, value: Any) -> int:
        self[value] = identity = len(self)
        return identity

    @property
    def names(self) -> tuple[Any, ...]:
        """The values by id."""
        return tuple(self)
