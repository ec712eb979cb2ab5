"""What happens around all trajectories of a run, as its spans say it: steps, weight syncs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor_probes.record import layout

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Windows:
    """Disjoint stretches of the run in their order, by starts and ends."""

    start_ns: Times
    end_ns: Times

    @classmethod
    def of(cls, start_ns: Times, end_ns: Times) -> Windows:
        """Return the union of stretches that may overlap."""
        order = np.argsort(start_ns, kind="stable")
        start_ns, reach_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
        begins = np.append(True, start_ns[1:] > reach_ns[:-1])[: len(order)]
        ends = np.append(begins[1:], True)[: len(order)]
        return cls(start_ns[begins], reach_ns[ends])

    def before(self, moments_ns: Times) -> Times:
        """Return how much of the windows lies before each moment."""
        if not len(self.start_ns):
            return np.zeros(len(moments_ns), np.int64)
        edges = np.stack([self.start_ns, self.end_ns], axis=1).ravel()
        passed = np.cumsum(np.diff(edges, prepend=edges[0]) * (np.arange(len(edges)) % 2))
        before: Times = np.interp(moments_ns, edges, passed).astype(np.int64)
        return before

    def overlap(self, start_ns: Times, end_ns: Times) -> Times:
        """Return how much of each stretch lies in the windows."""
        return self.before(end_ns) - self.before(start_ns)

    def split(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the pieces of a stretch, each with whether it lies in a window."""
        at = start_ns
        first, last = np.searchsorted(self.end_ns, start_ns), np.searchsorted(self.start_ns, end_ns)
        for low, high in zip(self.start_ns[first:last].tolist(), self.end_ns[first:last].tolist()):
            if at < low:
                yield at, low, False
            at = min(high, end_ns)
            yield max(low, start_ns), at, True
        if at < end_ns:
            yield at, end_ns, False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Steps by their starts, weight syncs and their parts; while `paused` the engine stands still.

    `pausing` are the calls that pause it, which wait for what it is computing.
    """

    steps: NDArray[np.int64]
    step_starts_ns: Times
    syncs: Windows
    pausing: Windows
    paused: Windows
    sending: Windows
    resuming: Windows


def surroundings(spans: Any, names: tuple[str, ...], carriers: set[int]) -> Surroundings:
    """Return what spans say of all trajectories.

    Args:
        spans: all `Spans` of the run.
        names: of the run.
        carriers: the processes that carry steps.
    """
    own = np.isin(spans.process, sorted(carriers))

    def windows(name: str) -> Windows:
        known = names.index(name) if name in names else -1
        mine = own & (spans.kind == layout.SPAN) & (spans.name == known)
        return Windows.of(spans.start_ns[mine], spans.end_ns[mine])

    steps = np.flatnonzero(own & (spans.kind == layout.STEP))
    numbers, first = np.unique(spans.value[steps].astype(np.int64), return_index=True)
    pausing, resuming = windows("sync/pause"), windows("sync/resume")
    after = np.searchsorted(resuming.start_ns, pausing.end_ns)
    met = after < len(resuming.start_ns)
    return Surroundings(
        steps=numbers,
        step_starts_ns=np.maximum.accumulate(spans.start_ns[steps][first]),
        syncs=windows("sync"),
        pausing=pausing,
        paused=Windows.of(pausing.end_ns[met], resuming.start_ns[after[met]]),
        sending=windows("sync/send"),
        resuming=resuming,
    )
