"""Rows of trajectories as a process would have written them, in seconds."""

from __future__ import annotations

import numpy as np

from grpo_doctor.trace.intervals import Intervals, union
from grpo_doctor.trace.trajectories.around import Surroundings
from grpo_doctor.trace.trajectories.digest import digest
from grpo_doctor.trace.trajectories.table import Table
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.trajectories import DONE
from grpo_doctor_reports.schema.trajectories import Trajectories


def windows(*stretches: tuple[float, float]) -> Intervals:
    edges = (1e9 * np.array(stretches, dtype=np.float64).reshape(-1, 2)).astype(np.int64)
    return union(edges[:, 0], edges[:, 1])


def around(
    steps: tuple[tuple[int, float], ...] = (),
    syncs: tuple[tuple[float, float], ...] = (),
    pausing: tuple[tuple[float, float], ...] = (),
    paused: tuple[tuple[float, float], ...] = (),
    sending: tuple[tuple[float, float], ...] = (),
) -> Surroundings:
    return Surroundings(
        steps=np.array([number for number, _ in steps], np.int64),
        step_starts_ns=np.array([int(1e9 * start) for _, start in steps], np.int64),
        syncs=windows(*syncs), pausing=windows(*pausing), paused=windows(*paused),
        sending=windows(*sending), resuming=windows(),
    )  # fmt: skip


class Written:
    """Collects rows; `digest` reads them."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, float, float, float]] = []
        self._count = 0

    def _row(
        self, kind: int, name: str, of: int, start: float, end: float, value: float = DONE
    ) -> None:
        identity = self._names.setdefault(name, len(self._names))
        self._rows.append((kind, identity, of, start, end, value))

    def trajectory(self, start: float, end: float, outcome: float = DONE, **facts: float) -> int:
        self._count += 1
        self._row(layout.TRAJECTORY, "trajectory", self._count, start, end, outcome)
        self.fact(self._count, start, **facts)
        return self._count

    def fact(self, of: int, at: float = 0.0, **facts: float) -> None:
        for name, value in facts.items():
            self._row(layout.FACT, name, of, at, at, value)

    def part(self, of: int, name: str, start: float, end: float, outcome: float = DONE) -> None:
        self._row(layout.PART, name, of, start, end, outcome)

    def taken(self, key: float, at: float, step: int, reason: str = "", **facts: float) -> None:
        dropped = {f"dropped/{reason}": 1.0} if reason else {}
        self.trajectory(at, at, taken=key, step=step, **dropped, **facts)

    def table(self) -> Table:
        kind, name, of, start, end, value = zip(*self._rows, strict=True)
        times = (np.array([start, end]) * 1e9).astype(np.int64)
        return Table(
            tuple(self._names), np.array(kind, np.uint8), np.array(name, np.int64),
            np.array(of, np.int64), times[0], times[1], np.array(value, np.float64),
        )  # fmt: skip

    def digest(self, surroundings: Surroundings | None = None) -> Trajectories:
        return digest(self.table(), surroundings or around())
