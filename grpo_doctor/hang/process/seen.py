"""The rows of a visit that belong to one process: each list is gone through once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from grpo_doctor.hang.process.progress import Motion, motion
from grpo_doctor_probes.evidence import (
    Blocked,
    Evidence,
    Limits,
    OpenSpanSeen,
    ProcessLook,
    Stack,
)


class _OfProcess(Protocol):
    @property
    def pid(self) -> int:
        """The process it belongs to."""


Row = TypeVar("Row", bound=_OfProcess)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one process. `looks`, `stacks` and `limits` are oldest first, one per look;
    None where that look did not find it.
    """

    looks: tuple[ProcessLook | None, ...] = ()
    stacks: tuple[tuple[Stack, ...], ...] = ()
    limits: tuple[Limits, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    frozen: bool = False

    @property
    def stack(self) -> Stack | None:
        """The last stack without native frames."""
        found = [s for s in self._with_threads() if not s.native]
        return found[-1] if found else None

    @property
    def native(self) -> Stack | None:
        """The last stack with native frames."""
        return next((s for s in reversed(self._with_threads()) if s.native), None)

    @property
    def motion(self) -> Motion:
        """What it did between the first look and the last."""
        if not self.looks:
            return Motion("unknown")
        stacks = [one[0] if one else None for one in self.stacks]
        return motion(self.looks[0], self.looks[-1], stacks, frozen=self.frozen)

    @property
    def ended_meanwhile(self) -> bool:
        """Whether the first look found it alive and the last did not."""
        gone = [one is None or one.state in ("Z", "X") for one in self.looks]
        return len(gone) > 1 and gone[-1] and not gone[0]

    def _with_threads(self) -> list[Stack]:
        return [stack for look in self.stacks for stack in look if stack.threads]


def index(evidence: Evidence) -> dict[int, Seen]:
    """Of every process of the job."""
    looks = [_first_of_each(one.processes) for one in evidence.looks]
    stacks = [_of_each(one) for one in evidence.stacks]
    limits = [_first_of_each(one) for one in evidence.limits]
    blocked, spans = _of_each(evidence.blocked), _of_each(evidence.spans)
    found: dict[int, Seen] = {}
    for pid in {member.pid for member in evidence.job.members}:
        own = tuple(one[pid] for one in limits if pid in one)
        found[pid] = Seen(
            looks=tuple(one.get(pid) for one in looks),
            stacks=tuple(one.get(pid, ()) for one in stacks),
            limits=own,
            blocked=blocked.get(pid, ()),
            spans=spans.get(pid, ()),
            frozen=bool(limits) and pid in limits[-1] and limits[-1][pid].frozen,
        )
    return found


def _of_each(rows: Iterable[Row]) -> dict[int, tuple[Row, ...]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.pid, []).append(row)
    return {pid: tuple(own) for pid, own in found.items()}


def _first_of_each(rows: Iterable[Row]) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for row in rows:
        found.setdefault(row.pid, row)
    return found
