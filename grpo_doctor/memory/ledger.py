"""Hold a memory estimate: what is on a card in each phase, by entry, and whether it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

State = Literal["fits", "tight", "oom", "invalid"]
_WORST_FIRST: tuple[State, ...] = ("invalid", "oom", "tight", "fits")
_REACH = NormalDist().inv_cdf(0.9)
_NOT_THE_TRAINERS = ("init", "rollout", "host")
SPARE_SHARE = 0.07
"""The share of a card that stays free wherever the trainer allocates, if a job `fits`: of reported
GRPO launches that leave less, half ran out of memory (docs/accuracy.md). Fragments, workspaces and
other processes are there, which no entry has. An engine keeps to its own share."""


@dataclass(frozen=True, slots=True)
class Component:
    """One entry. `spread` is one standard deviation of the bytes, as a share of them.

    Of the bytes, PyTorch's allocator gives `spare_bytes` back when memory runs short.
    """

    name: str
    bytes: int
    formula: str
    source: str
    knob: str | None = None
    spread: float = 0.02
    spare_bytes: int = 0


Row = tuple[str, float, str, str, str | None]
"""Name, bytes, formula, source and setting of an entry."""


def entries(spread: float, *rows: Row) -> tuple[Component, ...]:
    """Entries that are equally sure."""
    return tuple(
        Component(name, round(size), formula, source, knob, spread)
        for name, size, formula, source, knob in rows
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """From the least with which a phase runs to what it takes on a card with room."""

    low: int
    middle: int
    high: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What lies on the card at the worst moment of a phase."""

    name: str
    components: tuple[Component, ...]

    @property
    def bytes(self) -> int:
        """The sum of all entries, as `nvidia-smi` shows it on a card with room."""
        return sum(entry.bytes for entry in self.components)

    @property
    def needed_bytes(self) -> int:
        """The least with which the phase runs."""
        return sum(entry.bytes - entry.spare_bytes for entry in self.components)

    @property
    def spread(self) -> float:
        """One standard deviation of the sum, as a share of it; entries err independently."""
        total = max(1, self.bytes)
        return (
            math.sqrt(sum((entry.bytes * entry.spread) ** 2 for entry in self.components)) / total
        )

    @property
    def interval(self) -> Interval:
        """The range of the sum; entries err by their spread."""
        reach = math.exp(_REACH * self.spread)
        return Interval(round(self.needed_bytes / reach), self.bytes, round(self.bytes * reach))


@dataclass(frozen=True, slots=True)
class Pool:
    """One role on the cards it runs on; all its ranks are alike but for the named one."""

    role: str
    capacity_bytes: int
    phases: tuple[Phase, ...]
    peak_rank: str = "every rank"
    refusals: tuple[str, ...] = ()
    """Why the job would not even start, as sentences."""

    @property
    def peak(self) -> Phase:
        """The largest phase."""
        return max(self.phases, key=lambda phase: phase.bytes)

    def lacking(self, phase: Phase) -> float:
        """What a phase may lack to fit, as a share of the memory that there is."""
        spare = 0 if phase.name in _NOT_THE_TRAINERS else SPARE_SHARE
        return max(0.0, phase.interval.high / self.capacity_bytes - 1 + spare)

    @property
    def decisive(self) -> Phase:
        """The phase that the verdict is about: one that cannot fit, else the one that may not."""
        return max(
            self.phases,
            key=lambda phase: (
                phase.interval.low > self.capacity_bytes,
                self.lacking(phase) > 0,
                phase.bytes,
            ),
        )

    @property
    def needed_share(self) -> float:
        """The least with which every phase runs, as a share of the memory that there is."""
        return max(phase.needed_bytes for phase in self.phases) / self.capacity_bytes

    @property
    def state(self) -> State:
        """`oom` where the whole interval is above the capacity, `fits` where it leaves room."""
        if self.refusals:
            return "invalid"
        if self.decisive.interval.low > self.capacity_bytes:
            return "oom"
        return "tight" if self.lacking(self.decisive) else "fits"


@dataclass(frozen=True, slots=True)
class Ledger:
    """All pools of a job, the cards' first and the hosts' memory last."""

    pools: tuple[Pool, ...]
    host: Pool | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def worst(self) -> Pool:
        """The pool that decides: the worst state, then the one with the least memory left."""
        pools = (*self.pools, self.host) if self.host else self.pools
        return min(pools, key=lambda pool: (_WORST_FIRST.index(pool.state), -pool.needed_share))

    @property
    def state(self) -> State:
        """The verdict on the whole job."""
        return self.worst.state

    @property
    def train(self) -> Pool:
        """The pool that trains."""
        return self.pools[0]
