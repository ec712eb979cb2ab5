"""The mutex of torch's NCCL recorder, looked at from outside before anything is asked.

From torch 2.14 on a dump asks CUDA for the state of its events while it holds this mutex. Who waits
for the mutex then waits for the GPU, and each new collective takes it first. So nothing of ours
ever takes it, and nothing is asked while somebody else has it.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.cplusplus import static_pointer
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import numbers, own_number
from grpo_doctor_probes.procstat import read_stat

_FLAGS_BYTES = 8  # enabled, C++ stacks; the mutex is aligned
_HEAD = struct.Struct("<BB6xiIiIi")  # ...; pthread_mutex_t: lock, count, owner, users, kind
_MUTEX_BYTES = {"x86_64": 40, "aarch64": 48}
_RING = struct.Struct("<QQQQQQ")  # entries: begin, end, room; most entries, next, id
_MOST_ENTRIES = 1 << 32
_AGAIN_S = 0.002
_PLAIN_KIND = 0  # of a std::mutex


@dataclass(frozen=True)
class RecorderLock:
    """The state of a recorder. `on`: it records; `locked`: its mutex is; `owner`: by which thread,
    numbered as its process does, 0 unknown."""

    on: bool
    locked: bool
    owner: int


class UnknownRecorderError(Exception):
    """What is there is not laid out as a recorder; the message says what was met."""


def recorder_at(memory: Memory, machine: str, function: int) -> int | None:
    """The recorder that `function` dumps; None where the process has made none yet.

    Raises:
        UnknownRecorderError: it can't be told.
        OSError: the memory can't be read.
    """
    if machine != "x86_64":
        raise UnknownRecorderError(f"its code is for {machine}, of which only x86_64 is understood")
    guard = static_pointer(memory, function)
    if guard is None:
        raise UnknownRecorderError("its code has another form than in torch 2.8 to 2.15")
    made, recorder = struct.unpack("<BxxxxxxxQ", memory.read(guard, 16))
    return recorder if made and recorder else None


def look(memory: Memory, machine: str, recorder: int) -> RecorderLock:
    """The state of its mutex now. Raises UnknownRecorderError, OSError."""
    size = _FLAGS_BYTES + _MUTEX_BYTES[machine]
    raw = memory.read(recorder, size + _RING.size)
    on, stacks, lock, _count, owner, _users, kind = _HEAD.unpack_from(raw)
    begin, end, room, max_entries, next_entry, _id = _RING.unpack_from(raw, size)
    plausible = on <= 1 and stacks <= 1 and 0 <= lock <= 2 and owner >= 0 and kind == _PLAIN_KIND
    if not (plausible and begin <= end <= room and next_entry <= max_entries < _MOST_ENTRIES):
        raise UnknownRecorderError("it is laid out otherwise than in torch 2.8 to 2.15")
    return RecorderLock(bool(on), lock != 0, owner)


def why_not(memory: Memory, pid: int, machine: str, function: int, deadline: float) -> str:
    """Why the recorder that `function` dumps must not be asked; "" where it may be.

    A mutex that is held is waited for until `deadline` (time.monotonic): a record takes it for
    microseconds, so that one which stays held is news by itself.
    """
    try:
        recorder = recorder_at(memory, machine, function)
        if recorder is None:
            return "it has made no NCCL group"
        state = look(memory, machine, recorder)
        while state.locked and time.monotonic() < deadline:
            time.sleep(_AGAIN_S)
            state = look(memory, machine, recorder)
    except UnknownRecorderError as error:
        return f"whether NCCL's recorder is locked can't be told: {error}; so it is not asked"
    if not state.on:
        return "NCCL's recorder is off: TORCH_FR_BUFFER_SIZE=2000 turns it on from the start"
    if state.locked:
        return f"NCCL's recorder is locked by {_thread_text(pid, state.owner)}, so it is not asked"
    return ""


def _thread_text(pid: int, owner: int) -> str:
    """Thread `owner` of the process in words, by our number for it."""
    try:
        for tid in numbers(f"/proc/{pid}/task"):
            folder = f"/proc/{pid}/task/{tid}"
            if own_number(folder) == owner:
                name = printable(read_stat(folder).name.decode("utf-8", "replace"))
                return f"its thread {tid} ({name})"
    except (OSError, ValueError):
        pass
    return "another thread"
