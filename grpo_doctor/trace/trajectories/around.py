"""What happens around all trajectories of a run, as its spans say it: steps, weight syncs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Intervals, Times, union
from grpo_doctor_probes.record import layout


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Steps by their starts, weight syncs and their parts; while `paused` the engine stands still.

    `pausing` are the calls that pause it, which wait for what it is computing.
    """

    steps: NDArray[np.int64]
    step_starts_ns: Times
    syncs: Intervals
    pausing: Intervals
    paused: Intervals
    sending: Intervals
    resuming: Intervals


def surroundings(spans: Any, names: tuple[str, ...], carriers: set[int]) -> Surroundings:
    """Return what spans say of all trajectories.

    Args:
        spans: all `Spans` of the run.
        names: of the run.
        carriers: the processes that carry steps.
    """
    own = np.isin(spans.process, sorted(carriers))

    def windows(name: str) -> Intervals:
        known = names.index(name) if name in names else -1
        mine = own & (spans.kind == layout.SPAN) & (spans.name == known)
        return union(spans.start_ns[mine], spans.end_ns[mine])

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
        paused=union(pausing.end_ns[met], resuming.start_ns[after[met]]),
        sending=windows("sync/send"),
        resuming=resuming,
    )
