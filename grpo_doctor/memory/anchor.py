"""Compare the memory estimate with a recorded step, and correct further answers by the result.

Memory measured outside the process never shrinks while PyTorch's allocator, or the C library,
keeps what was freed. So the first step is compared: what was there before it, and what the first
pass through each phase added. The memory estimate lists the entries of each addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.ledger import Component, Interval
from grpo_doctor.memory.setup import GIB, Setup
from grpo_doctor.memory.states import states_of

LOADED = "loaded"
"""The name of what is there before the first step."""
_STATES_AT_START = ("deepspeed", "megatron")
"""They allocate the optimizer's state before the first step, the others in its optimizer step."""
_SMALLEST = GIB // 16
"""Below 64 MiB an addition is lost among buffers, and its ratio says nothing."""


@dataclass(frozen=True, slots=True)
class Held:
    """The most that was held up to the end of the first pass through a phase, in bytes."""

    phase: str
    bytes: float


@dataclass(frozen=True, slots=True)
class Addition:
    """What a phase added to what was held before; `entries` are the estimate's, largest first."""

    phase: str
    entries: tuple[str, ...]
    predicted_bytes: int
    measured_bytes: int

    @property
    def ratio(self) -> float:
        """Return measured over predicted bytes; 1 if either is too small to compare."""
        if min(self.predicted_bytes, self.measured_bytes) < _SMALLEST:
            return 1.0
        return self.measured_bytes / self.predicted_bytes


@dataclass(frozen=True, slots=True)
class Anchor:
    """A job's memory estimate and what was measured of the job."""

    setup: Setup
    additions: tuple[Addition, ...]
    predicted: Interval
    """Of the most that is held in the recorded phases."""
    measured_bytes: int

    def bytes(self, changed: Setup) -> int:
        """Return the peak of the job with another setup: the measured peak plus the change of the
        memory estimate, with each phase's change scaled by its measured ratio."""
        phases = [addition.phase for addition in self.additions[1:]]
        before = _additions(self.setup, phases)
        after = _additions(changed, phases)
        ratios = [1.0, *(addition.ratio for addition in self.additions[1:])]
        moved = sum(
            ratio * (_total(new) - _total(old))
            for ratio, old, new in zip(ratios, before, after, strict=True)
        )
        return round(self.measured_bytes + moved)


def anchor(setup: Setup, readings: Sequence[Held]) -> Anchor:
    """Compare a memory estimate with a recording.

    Args:
        setup: what ran.
        readings: first `LOADED`, then the phases in the order of their first pass; phases that
            the memory estimate does not have are ignored.
    """
    ledger = ledger_of(setup).train
    in_ledger = {phase.name for phase in ledger.phases}
    readings = [readings[0], *(each for each in readings[1:] if each.phase in in_ledger)]
    added = _additions(setup, [each.phase for each in readings[1:]])
    peaks = [round(peak) for peak in accumulate((each.bytes for each in readings), max)]
    additions = tuple(
        Addition(
            each.phase,
            tuple(entry.name for entry in sorted(entries, key=lambda entry: -entry.bytes)),
            _total(entries),
            peak - before,
        )
        for each, entries, peak, before in zip(readings, added, peaks, [0, *peaks], strict=False)
    )
    predicted = sum(addition.predicted_bytes for addition in additions)
    spread = ledger.peak.interval
    return Anchor(
        setup,
        additions,
        Interval(
            round(predicted * spread.low / max(1, spread.middle)),
            predicted,
            round(predicted * spread.high / max(1, spread.middle)),
        ),
        peaks[-1],
    )


def with_rows_of(setup: Setup, row_tokens: int) -> Setup:
    """The setup where a row, prompt and completion, has so many tokens."""
    completion = min(setup.completion_tokens, max(1, row_tokens - 1))
    return replace(
        setup,
        completion_tokens=completion,
        prompt_tokens=max(1, row_tokens - completion),
        padding_free=False,
    )


def _total(entries: Sequence[Component]) -> int:
    return sum(entry.bytes for entry in entries)


def _additions(setup: Setup, phases: Sequence[str]) -> list[list[Component]]:
    """What is loaded, then for each phase what it needs beyond the most that was held before."""
    pool = ledger_of(setup).train
    entries = {phase.name: phase.components for phase in pool.phases}
    states = states_of(setup, calibration())
    unborn = {"gradients"}
    if setup.engine not in _STATES_AT_START:
        unborn |= {entry.name for entry in states.optimizer}
    resident = entries.get("init") or entries["checkpoint"][:-1]
    if setup.engine in _STATES_AT_START and "init" in entries:
        resident = (*resident, *states.optimizer)
    added = [_alive(resident, unborn)]
    total = _total(added[0])
    earlier = {entry.name for entry in added[0]}
    for phase in phases:
        unborn -= {"gradients"} if phase in ("train", "optimizer") else set()
        if phase == "optimizer":
            unborn -= {entry.name for entry in states.optimizer}
        alive = _alive(entries[phase], unborn)
        more = max(0, _total(alive) - total)
        new = [entry for entry in alive if entry.name not in earlier] or alive
        added.append(_scaled(new, more))
        earlier |= {entry.name for entry in alive}
        total += more
    return added


def _alive(entries: Sequence[Component], unborn: set[str]) -> list[Component]:
    return [entry for entry in entries if entry.name not in unborn and entry.bytes]


def _scaled(entries: list[Component], total: int) -> list[Component]:
    """The entries with `total` bytes together: some lie where earlier ones were freed."""
    sum_bytes = _total(entries)
    if not sum_bytes or not total:
        return []
    return [replace(entry, bytes=round(entry.bytes * total / sum_bytes)) for entry in entries]
