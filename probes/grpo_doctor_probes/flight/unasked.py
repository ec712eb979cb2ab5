"""What is known of the recorder of a device without asking it: its ring, or why it is not asked."""

from __future__ import annotations

import time

from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight import recorderlock
from grpo_doctor_probes.flight.borrow import Place
from grpo_doctor_probes.flight.recorderlock import UnknownRecorderError
from grpo_doctor_probes.flight.recorders import Recorder
from grpo_doctor_probes.flight.ring import read_ring

_LOCKED_AT_MOST_S = 0.3  # a record holds the mutex for microseconds
_READS_WITHIN_S = 5.0  # 0.1 s for 2,000 entries, and more on a machine with no core to spare


def answer(place: Place, recorder: Recorder, member: Member, deadline: float) -> FlightDump | None:
    """The dump, or one that says why there is none; None for a recorder that may be asked.

    Raises OSError where the memory can't be read.
    """
    if not recorder.has_events:
        return None
    taken = time.time_ns()
    try:
        data = within(_READS_WITHIN_S, lambda: _entries(place, recorder))
    except TimeoutError:
        return _dump(member, recorder, taken, b"", "its memory gave no answer in time")
    if data:
        return _dump(member, recorder, taken, data, "")
    until = min(deadline, time.monotonic() + _LOCKED_AT_MOST_S)
    machine, function = place.machine.name, recorder.function
    reason = recorderlock.why_not(place.memory, place.pid, machine, function, until)
    return _dump(member, recorder, taken, b"", reason) if reason else None


def _entries(place: Place, recorder: Recorder) -> bytes:
    """All that a recorder has, out of memory; nothing where that can't be told."""
    machine = place.machine.name
    try:
        at = recorderlock.recorder_at(place.memory, machine, recorder.function)
        if at is None or not recorderlock.look(place.memory, machine, at).on:
            return b""
        return read_ring(place.memory, machine, at)
    except UnknownRecorderError:
        return b""


def _dump(
    member: Member, recorder: Recorder, taken_ns: int, data: bytes, problem: str
) -> FlightDump:
    source = "memory" if data else "ptrace"
    return FlightDump(
        source, member.rank, member.pid, recorder.backend, taken_ns, data, problem=problem
    )
