"""The rows of `record/trajectories.py` of all processes as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Times
from grpo_doctor.trace.spanfile import SpanRecords
from grpo_doctor_probes.procs.live import name_of
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.trajectories import OPEN


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of all files as columns; `of` is the number of their trajectory, 0 for none.

    What is still open ends where its process was seen last.
    """

    names: tuple[str, ...]
    kind: NDArray[np.uint8]
    name: NDArray[np.int64]
    of: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    value: NDArray[np.float64]

    def select(self, rows: NDArray[np.bool_]) -> Table:
        """Return the same columns at some rows."""
        return Table(self.names, *(getattr(self, column)[rows] for column in _COLUMNS))

    def called(self, name: str) -> NDArray[np.bool_]:
        """Return which rows have this name."""
        named: NDArray[np.bool_] = self.name == (
            self.names.index(name) if name in self.names else -1
        )
        return named

    @property
    def has_trajectories(self) -> bool:
        """Whether there is any."""
        return bool((self.kind == layout.TRAJECTORY).any())

    def begins(self, prefix: str) -> NDArray[np.bool_]:
        """Return which names begin so, by their id."""
        return np.array([name.startswith(prefix) for name in self.names] or [False])


_LARGEST = float(1 << 53)  # of a damaged file: a number that no JSON takes as a whole one
_COLUMNS = ("kind", "name", "of", "start_ns", "end_ns", "value")


def table_of(recorded: Sequence[tuple[SpanRecords, int, int]]) -> Table:
    """Return the rows of all processes.

    Args:
        recorded: of each, what takes its clock to the trace's, and when it was seen last, in ns.
    """
    names: dict[str, int] = {}
    columns: list[tuple[NDArray[Any], ...]] = []
    for number, (content, shift_ns, last_ns) in enumerate(recorded):
        rows = content.records
        own = (name_of((), 0), *content.header.names)
        ids = np.array([names.setdefault(name, len(names)) for name in own], np.int64)
        serial = rows["thread"].astype(np.int64) | rows["depth"].astype(np.int64) << 16
        is_open = (rows["value"] == OPEN) & (rows["kind"] != layout.FACT)
        columns.append((
            rows["kind"], ids[rows["name"]], np.where(serial == 0, 0, serial | number << 24),
            rows["start_ns"] + shift_ns, np.where(is_open, last_ns, rows["end_ns"] + shift_ns),
            rows["value"].clip(-_LARGEST, _LARGEST),
        ))  # fmt: skip
    empty = tuple(np.empty(0, kind) for kind in (np.uint8, *[np.int64] * 4, np.float64))
    return Table(tuple(names), *map(np.concatenate, zip(empty, *columns)))
