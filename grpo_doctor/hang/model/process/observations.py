"""The rows of a visit that belong to one process: each list is gone through once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from grpo_doctor.hang.model.process.device import SpinSample
from grpo_doctor.hang.model.process.known_code import Call
from grpo_doctor.hang.model.process.progress import Activity, activity
from grpo_doctor_probes.evidence import (
    Blocked,
    Evidence,
    Frame,
    Limits,
    OpenSpanSeen,
    ProcessLook,
    Stack,
)

# Of torch's own C++: innermost functions of a wait for other ranks.
_NATIVE_WAITS: tuple[tuple[Call, re.Pattern[str]], ...] = (
    ("p2p", re.compile(r"^c10d::\w+::(Send|Recv)Work::wait|^gloo::.*::wait(Send|Recv)")),
    ("collective", re.compile(r"^c10d::(\w+::)*\w*Work\w*::(wait|synchronize)")),
)
NativeCalls = dict[tuple[Frame, ...], Call]


class _OfProcess(Protocol):
    @property
    def pid(self) -> int:
        """The process it belongs to."""


Row = TypeVar("Row", bound=_OfProcess)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of one process. `looks`, `stacks` and `limits` are oldest first, one per look;
    None where that look did not find it.
    """

    looks: tuple[ProcessLook | None, ...] = ()
    stacks: tuple[tuple[Stack, ...], ...] = ()
    limits: tuple[Limits, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    frozen: bool = False
    closer: SpinSample = field(default_factory=SpinSample)

    @property
    def stack(self) -> Stack | None:
        """The last stack without native frames."""
        python = [s for s in self._with_threads() if not s.native]
        return python[-1] if python else None

    @property
    def native(self) -> Stack | None:
        """The last stack with native frames."""
        return next((s for s in reversed(self._with_threads()) if s.native), None)

    @property
    def activity(self) -> Activity:
        """Return what it did between the first sample and the last."""
        if not self.looks:
            return Activity("unknown")
        stacks = [look[0] if look else None for look in self.stacks]
        return activity(self.looks[0], self.looks[-1], stacks, frozen=self.frozen, at=self.closer)

    @property
    def ended_meanwhile(self) -> bool:
        """Return whether the first sample found it alive and the last did not."""
        ended = [look is None or look.state in ("Z", "X") for look in self.looks]
        return len(ended) > 1 and ended[-1] and not ended[0]

    def _with_threads(self) -> list[Stack]:
        return [stack for look in self.stacks for stack in look if stack.threads]


def index(evidence: Evidence) -> dict[int, Observation]:
    """Of every process of the job."""
    looks = [_first_of_each(look.processes) for look in evidence.looks]
    stacks = [_of_each(look) for look in evidence.stacks]
    limits = [_first_of_each(look) for look in evidence.limits]
    blocked, spans = _of_each(evidence.blocked), _of_each(evidence.spans)
    positions, digests = _of_each(evidence.positions), _of_each(evidence.locals_seen)
    ranks = {member.pid for member in evidence.job.ranks()}
    by_pid: dict[int, Observation] = {}
    for pid in {member.pid for member in evidence.job.members}:
        own = tuple(look[pid] for look in limits if pid in look)
        by_pid[pid] = Observation(
            looks=tuple(look.get(pid) for look in looks),
            stacks=tuple(look.get(pid, ()) for look in stacks),
            limits=own,
            blocked=blocked.get(pid, ()),
            spans=spans.get(pid, ()),
            closer=SpinSample(positions.get(pid, ()), digests.get(pid, ()), pid in ranks),
            frozen=bool(limits) and pid in limits[-1] and limits[-1][pid].frozen,
        )
    return by_pid


def _of_each(rows: Iterable[Row]) -> dict[int, tuple[Row, ...]]:
    by_pid: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_pid[row.pid].append(row)
    return {pid: tuple(own) for pid, own in by_pid.items()}


def _first_of_each(rows: Iterable[Row]) -> dict[int, Row]:
    return {pid: own[0] for pid, own in _of_each(rows).items()}


def native_calls(processes: Iterable[Observation]) -> NativeCalls:
    """Return stacks of Python frames whose main threads are in C++ under a line of the user's own,
    and their call: who is at the same line of the same callers is in the same one.
    """
    calls: NativeCalls = {}
    for process in processes:
        if process.native is None or process.stack is None:
            continue
        call = _native_call(process.native)
        if call and process.stack.threads:
            calls[process.stack.threads[0].frames] = call
    return calls


def _native_call(native: Stack) -> Call:
    names = [frame.function for thread in native.threads[:1] for frame in thread.frames]
    return next((call for call, waits in _NATIVE_WAITS if any(map(waits.search, names))), "")
