"""Reads the files of `record/trajectories.py` into columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.spanfile import TRAJECTORY_KINDS, read_span_file
from grpo_doctor.trace.trajectories.around import Times
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

    def begins(self, prefix: str) -> NDArray[np.bool_]:
        """Return which names begin so, by their id."""
        return np.array([name.startswith(prefix) for name in self.names] or [False])


_COLUMNS = ("kind", "name", "of", "start_ns", "end_ns", "value")


def read_table(files: Iterable[tuple[Path, int, int]]) -> tuple[Table, list[str], int]:
    """Return the rows of all files, what is wrong with files, and how many rows were lost."""
    names: dict[str, int] = {}
    columns: list[tuple[NDArray[Any], ...]] = []
    problems: list[str] = []
    lost = 0
    for number, (path, shift_ns, last_ns) in enumerate(files):
        try:
            content = read_span_file(path, TRAJECTORY_KINDS)
        except TraceError as error:
            problems.append(str(error).replace("This process is", "Its trajectories are"))
            continue
        if content.truncated:
            problems.append(f"{path.name}: cut off; the trajectories that are there are used")
        if content.damaged:
            problems.append(f"{path.name}: {content.damaged} damaged records left out")
        lost += content.header.dropped
        rows = content.records
        own = (name_of((), 0), *content.header.names)
        ids = np.array([names.setdefault(name, len(names)) for name in own], np.int64)
        serial = rows["thread"].astype(np.int64) | rows["depth"].astype(np.int64) << 16
        file_bits = np.where(serial == 0, 0, number << 24)
        columns.append((
            rows["kind"], ids[rows["name"]], serial | file_bits, rows["start_ns"] + shift_ns,
            np.where(
                (rows["value"] == OPEN) & (rows["kind"] != layout.FACT), last_ns,
                rows["end_ns"] + shift_ns,
            ), rows["value"],
        ))  # fmt: skip
    empty = tuple(np.empty(0, t) for t in (np.uint8, *[np.int64] * 4, np.float64))
    joined = [np.concatenate(column) for column in zip(empty, *columns)]
    return Table(tuple(names), *joined), problems, lost
