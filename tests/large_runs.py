"""Large runs as whole columns, in a second: what charts of thousands of steps are tested on.

`TraceBuilder` adds row by row, which takes a minute for a million spans.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.columns import DTYPES, in_order, spans_from
from grpo_doctor.trace.model import Kind, Spans, Trace
from tests.build import SECOND, TraceBuilder

PHASE_S = {"rollout": 0.45, "reward": 0.06, "logprob": 0.11, "train": 0.28}
REST_S = 0.05
WORST_STEP = 3 / 7  # of the run: as far along is the step that takes three times as long
SUB_SPANS = {"rollout/generate": ("rollout", 0.1, 0.95), "train/backward": ("train", 0.4, 0.8)}


def slow_rank(ranks: int) -> int:
    """The rank that works longest: it takes half as long again in `reward`."""
    return ranks * 5 // 8


def large_run(ranks: int, steps: int, *, sub_spans: bool = True) -> Trace:
    """A run whose steps end in an all_reduce in `train` that waits for the slowest rank.

    Every eleventh completion batch is longer on some ranks, the first step warms up, and one step
    is three times as long as the others.
    """
    random = np.random.default_rng(ranks * steps)
    took = {
        name: seconds * random.lognormal(0, 0.04, (steps, ranks))
        for name, seconds in PHASE_S.items()
    }
    took["rollout"][::11] *= random.uniform(1, 1.3, took["rollout"][::11].shape)
    took["reward"][:, slow_rank(ranks)] *= 1.5
    for row, factor in ((0, 2.5), (int(steps * WORST_STEP), 3.0)):
        for seconds in took.values():
            seconds[row] *= factor
    arrival = np.sum(list(took.values()), axis=0)
    length = arrival.max(axis=1) + 0.02 + REST_S
    begin = np.concatenate([[0.0], np.cumsum(length + 0.005)[:-1]])
    columns = _Columns(steps, ranks)
    columns.add(Kind.STEP, "step", 0, begin[:, None], (begin + length)[:, None], np.arange(steps))
    now = np.broadcast_to(begin[:, None], (steps, ranks))
    starts = {}
    for name, seconds in took.items():
        starts[name] = now
        ends = begin[:, None] + (length - REST_S)[:, None] if name == "train" else now + seconds
        columns.add(Kind.SPAN, name, 1, now, ends)
        now = now + seconds
    for name, (phase, first, last) in SUB_SPANS.items() if sub_spans else ():
        at, seconds = starts[phase], took[phase]
        columns.add(Kind.SPAN, name, 2, at + first * seconds, at + last * seconds)
    ends = (begin + length - REST_S)[:, None]
    columns.add(Kind.COLLECTIVE, "all_reduce", 2, now, ends, np.arange(steps))
    empty = TraceBuilder(ranks=ranks).build()
    spans, names = columns.spans()
    run = dataclasses.replace(empty.run, duration_ns=int(spans.end_ns.max()))
    processes = tuple(dataclasses.replace(p, end_ns=run.duration_ns) for p in empty.processes)
    return dataclasses.replace(empty, run=run, processes=processes, names=names, spans=spans)


class _Columns:
    """Spans of all ranks and steps at once; tables have the shape (steps, ranks)."""

    def __init__(self, steps: int, ranks: int) -> None:
        self._shape = (steps, ranks)
        self._names: list[str] = []
        self._blocks: dict[str, list[NDArray[np.generic]]] = {name: [] for name in DTYPES}

    def add(
        self,
        kind: Kind,
        name: str,
        depth: int,
        start_s: NDArray[np.float64],
        end_s: NDArray[np.float64],
        value: NDArray[np.int64] | None = None,
    ) -> None:
        """Adds one span of every rank and step; `value` (steps,) is its number."""
        self._names.append(name)
        numbers = np.zeros(self._shape[0]) if value is None else value
        row = {
            "kind": kind,
            "process": np.arange(self._shape[1]),
            "thread": 0,
            "depth": depth,
            "name": len(self._names) - 1,
            "args": -1,
            "start_ns": np.round(start_s * SECOND),
            "end_ns": np.round(end_s * SECOND),
            "value": numbers[:, None],
            "open": False,
        }
        for column, values in row.items():
            table = np.broadcast_to(np.asarray(values), self._shape)
            self._blocks[column].append(table.T.astype(DTYPES[column]))

    def spans(self) -> tuple[Spans, tuple[str, ...]]:
        """All of them in the model's order, and their names."""
        begins = [block[0, 0] for block in self._blocks["start_ns"]]
        depths = [block[0, 0] for block in self._blocks["depth"]]
        order = np.lexsort((depths, begins))  # the same in every step of every rank
        together = {
            name: np.stack([blocks[at] for at in order], axis=2).ravel()
            for name, blocks in self._blocks.items()
        }
        return in_order(spans_from(together)), tuple(self._names)
