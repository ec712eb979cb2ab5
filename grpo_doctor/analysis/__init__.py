"""What a recording says by itself: steps, phases, work and wait, GPUs; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.accounting import Accounting, Table, account, idle, phase_seconds
from grpo_doctor.analysis.device import DEVICE_PHASES, device_seconds, on_device_clock
from grpo_doctor.analysis.driven import by_rank
from grpo_doctor.analysis.gpu import GpuMemory, busy_percent, gpu_memory, truly_busy_percent
from grpo_doctor.analysis.regimes import Regimes, find_regimes
from grpo_doctor.analysis.rows import (
    CODES,
    UNATTRIBUTED_CODE,
    PhaseTrack,
    RankRows,
    phase_track,
    rank_rows,
)
from grpo_doctor.analysis.steps import Steps, find_steps
from grpo_doctor.analysis.stragglers import Blame, duties, find_blame
from grpo_doctor.analysis.waits import Waits, find_waits
from grpo_doctor.phases import UNATTRIBUTED
from grpo_doctor.trace.intervals import Intervals, together
from grpo_doctor.trace.model import Trace

__all__ = ["Analysis", "Table", "analyse"]


@dataclass(frozen=True)
class Analysis:
    """The numbers of one trace.

    `ranks[i]` is column i of every table. `seconds` and `waited` have shape (steps, ranks, phases
    and unattributed), NaN where a rank has no such step; `waited` is the part of `seconds` spent
    for another rank.
    """

    trace: Trace
    ranks: tuple[int, ...]
    mains: tuple[RankRows, ...]
    tracks: tuple[PhaseTrack, ...]
    steps: Steps
    waits: Waits
    seconds: Table
    waited: Table

    @cached_property
    def used_seconds(self) -> Table:
        """`seconds` of the used steps and stepping ranks: nothing in it is NaN."""
        return self.steps.used_cells(self.seconds)

    @cached_property
    def has_phases(self) -> bool:
        """Whether the used steps have time in any phase."""
        return bool((self.used_seconds[:, :, :UNATTRIBUTED_CODE] > 0).any())

    @cached_property
    def used_waited(self) -> Table:
        """`waited` of the used steps and stepping ranks."""
        return self.steps.used_cells(self.waited)

    @cached_property
    def used_transferred(self) -> Table:
        """`transferred` of the used steps and stepping ranks."""
        return self.steps.used_cells(self.transferred)

    @cached_property
    def used_idled(self) -> Table:
        """`idled` of the used steps and stepping ranks."""
        return self.steps.used_cells(self.idled)

    @cached_property
    def device_seconds(self) -> dict[str, float]:
        """Seconds per step of each phase by the GPU's own clock, as far as that was measured."""
        return device_seconds(self.trace, self.ranks, self.steps)

    @property
    def by_host_clock_alone(self) -> frozenset[str]:
        """The phases that compute on GPUs of which only the host's clock is known."""
        if not any(gpu.visible for gpu in self.trace.gpus):
            return frozenset()
        phase_totals = self.used_seconds.sum(axis=(0, 1))
        present = {phase for phase in DEVICE_PHASES if phase_totals[CODES[phase]] > 0}
        return frozenset(present - self.device_seconds.keys())

    def phase_work(self, phase: str) -> Table:
        """Return seconds of a phase without waiting for another rank, shape (used steps, ranks).

        Transfers and idle time are in it, as a change of a phase changes them too.
        """
        code = UNATTRIBUTED_CODE if phase == UNATTRIBUTED else CODES[phase]
        return self.used_seconds[:, :, code] - self.used_waited[:, :, code]

    @cached_property
    def duties(self) -> tuple[Intervals, ...]:
        """When each rank did what one rank does for all: checkpoints, evaluations, logs."""
        return duties(self.trace, self.mains, self.waits)

    @cached_property
    def used_own_work(self) -> Table:
        """`used_seconds` without waits and `duties`: what ranks can be compared by."""
        at_duty = phase_seconds(self.steps, self.tracks, self.duties)
        return self.used_seconds - self.used_waited - self.steps.used_cells(at_duty)

    @cached_property
    def transferred(self) -> Table:
        """The part of `seconds` in collectives that every rank had reached; same shape."""
        return phase_seconds(self.steps, self.tracks, self.waits.transfers)

    @cached_property
    def idle(self) -> tuple[Intervals, ...]:
        """When each rank had nothing open, or waited for the engine, within its steps."""
        pairs = zip(self.waits.per_rank, self.waits.transfers, strict=True)
        return tuple(
            idle(self.trace, self.steps, column, self.mains[column], pair)
            for column, pair in enumerate(pairs)
        )

    @cached_property
    def idled(self) -> Table:
        """The part of `seconds` in which the rank was idle; same shape."""
        return phase_seconds(self.steps, self.tracks, self.idle)

    @cached_property
    def accounting(self) -> Accounting:
        """Each step and rank as work, wait, transfer and idle."""
        return account(self.seconds, self.waited, self.transferred, self.idled)

    @cached_property
    def regimes(self) -> Regimes:
        """Which steps are like the others, and from which one on."""
        return find_regimes(self.steps, self.seconds)

    @cached_property
    def step_seconds(self) -> NDArray[np.float64]:
        """Shape (used steps,): their length, the mean over ranks."""
        return self.steps.used_seconds

    @property
    def step_s(self) -> float | None:
        """The mean length of the used steps; None without any."""
        return float(self.step_seconds.mean()) if len(self.step_seconds) else None

    def share(self, phase: str) -> float:
        """Return a phase's share of the used steps' time; 0 without steps."""
        if not self.step_s:
            return 0.0
        code = UNATTRIBUTED_CODE if phase == UNATTRIBUTED else CODES[phase]
        return float(self.used_seconds[:, :, code].mean() / self.step_s)

    @cached_property
    def used_windows(self) -> Intervals:
        """The time in which any rank was in a used step."""
        return together([self.steps.windows(c, used=True)[0] for c in range(len(self.ranks))])

    @cached_property
    def blame(self) -> Blame:
        """Who the ranks waited for."""
        return find_blame(self.steps, self.waits, self.duties)

    @cached_property
    def gpu_memory(self) -> tuple[GpuMemory, ...]:
        """The memory of each sampled GPU."""
        return gpu_memory(self.trace, self.tracks)

    @cached_property
    def gpu_busy(self) -> tuple[float, str] | None:
        """How busy the GPUs were within the used steps, in percent, and by which series."""
        return busy_percent(self.trace, self.used_windows)

    @cached_property
    def gpu_truly_busy(self) -> tuple[float, str] | None:
        """The same by SM activity or power, which a rank that spins in a wait does not raise."""
        return truly_busy_percent(self.trace, self.used_windows)


def analyse(trace: Trace) -> Analysis:
    """Compute the tables of a trace; a trace without spans gives empty ones."""
    trace = by_rank(on_device_clock(trace))
    main = rank_rows(trace)
    tracks = tuple(phase_track(trace.spans, rows) for rows in main)
    steps = find_steps(trace, main)
    waits = find_waits(trace, main, steps.stepping)
    return Analysis(
        trace=trace,
        ranks=trace.ranks,
        mains=main,
        tracks=tracks,
        steps=steps,
        waits=waits,
        seconds=phase_seconds(steps, tracks),
        waited=phase_seconds(steps, tracks, waits.per_rank),
    )
