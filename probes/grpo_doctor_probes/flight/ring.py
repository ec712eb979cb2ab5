"""A flight recorder read out of the memory of its process, as JSON.

What comes out is what torch's own `dump_fr_trace_json` gives, but that no event is queried: an
operation counts as done since torch's watchdog saw it, which looks ten times a second unless it is
itself stuck.

Torch has had two layouts: of 2.8 and 2.9, and of 2.10 to 2.15 (`tests/torch_contract` reads the
wheels). Which one it is, or that it is another, shows in what does not fit: sizes, flags, the
numbers of the entries. The recorder may be running meanwhile: what was read counts only if it has
recorded nothing in between.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.cplusplus import NotAnObjectError, Reader

# Members in the order of their addresses, and the bytes from each to the next.
MUTEX_BYTES = {"x86_64": 40, "aarch64": 48}
EPOCHS = ("reset_epoch_", "reset_epoch_start_idx_")  # since torch 2.10
RECORDER_MEMBERS = (
    ("enabled_", 8), ("mutex_", 0), ("entries_", 24), ("max_entries_", 8), ("next_", 8),
    ("id_", 8), ("reset_epoch_", 8), ("reset_epoch_start_idx_", 56), ("all_pg_status_", 48),
    ("pg_name_to_ranks_", 48), ("comm_lib_version_", 32),
)  # fmt: skip
ENTRY_MEMBERS = (
    ("id_", 8), ("reset_epoch_", 8), ("pg_id_", 8), ("pg_name_", 64), ("collective_seq_id_", 8),
    ("p2p_seq_id_", 8), ("op_id_", 8), ("profiling_name_", 32), ("traceback_", 16), ("start_", 8),
    ("end_", 8), ("time_created_", 8), ("timeout_ms_", 8), ("isP2P_", 4), ("duration_", 12),
    ("time_discovered_started_", 16), ("time_discovered_completed_", 16), ("input_dims_", 48),
    ("input_dtypes_", 24), ("output_dims_", 48), ("output_dtypes_", 24), ("sizes_", 80),
    ("thread_id_", 8), ("thread_name_", 32), ("retired_", 8),
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where the members of a recorder and of its entries are, and how many bytes each has."""

    recorder: dict[str, int]
    recorder_bytes: int
    entry: dict[str, int]
    entry_bytes: int


def _layout(machine: str, left_out: Sequence[str] = ()) -> Layout:
    def placed(members: Sequence[tuple[str, int]]) -> tuple[dict[str, int], int]:
        sizes = {
            name: size or MUTEX_BYTES[machine] for name, size in members if name not in left_out
        }
        ends = list(accumulate(sizes.values()))
        return dict(zip(sizes, [0, *ends])), ends[-1]

    return Layout(*placed(RECORDER_MEMBERS), *placed(ENTRY_MEMBERS))


LAYOUTS = {machine: (_layout(machine), _layout(machine, EPOCHS)) for machine in MUTEX_BYTES}
_VERSION = "2.10"  # of the format
_MOST_ENTRIES = 20_000  # ten times torch's default
_MOST_ROOM = 1 << 32
_TRIES, _AGAIN_S = 5, 0.01
_HELD_S = 0.05
_FLAGS = struct.Struct("<BB6x")  # enabled, C++ stacks
_MUTEX = struct.Struct("<iIiIi")  # pthread_mutex_t: lock, count, owner, users, kind
_RING = struct.Struct("<QQQQQQ")  # entries: begin, end, room; most entries, next, id
_PLAIN_KIND = 0  # of a std::mutex
_TYPES = (
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf",
    "ComplexFloat", "ComplexDouble", "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16", "QUInt4x2",
    "QUInt2x4", "Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16", "Float8_e5m2",
    "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "UInt16", "UInt32", "UInt64",
)  # fmt: skip


class UnknownRecorderError(Exception):
    """What is there is not laid out as a recorder; the message says what was met."""


class RecordedMeanwhileError(UnknownRecorderError):
    """Each reading found more operations recorded than the one before: it makes progress."""


def is_on(memory: Memory, machine: str, at: int) -> bool:
    """Return whether the recorder records. Raises UnknownRecorderError, OSError."""
    return _state(memory, machine, at)[0]


def _state(memory: Memory, machine: str, at: int) -> tuple[bool, bool, int]:
    """Return whether it records, whether its mutex is held, and how much it has recorded."""
    ring_at = _FLAGS.size + MUTEX_BYTES[machine]
    raw = memory.read(at, ring_at + _RING.size)
    on, stacks = _FLAGS.unpack_from(raw)
    lock, _count, owner, _users, kind = _MUTEX.unpack_from(raw, _FLAGS.size)
    begin, end, room, max_entries, next_entry, recorded = _RING.unpack_from(raw, ring_at)
    plausible = on <= 1 and stacks <= 1 and 0 <= lock <= 2 and owner >= 0 and kind == _PLAIN_KIND
    if not (plausible and begin <= end <= room and next_entry <= max_entries < _MOST_ROOM):
        raise UnknownRecorderError("it is laid out otherwise than in torch 2.8 to 2.15")
    return bool(on), lock != 0, recorded


def read_ring(memory: Memory, machine: str, at: int) -> bytes:
    """Return what the recorder at that address has, as JSON.

    Raises:
        UnknownRecorderError: it is laid out otherwise, or never stood still.
        OSError: the memory can't be read.
    """
    misfits: list[str] = []
    begun: list[int] = []
    for _ in range(_TRIES):
        _, locked, recorded = _state(memory, machine, at)
        begun.append(recorded)
        problems = []
        for layout in LAYOUTS[machine]:
            head = memory.read(at, layout.recorder_bytes)
            recording = None
            try:
                recording = _recording(memory, layout, at, head)
            except (NotAnObjectError, OSError, struct.error) as error:
                problems.append(str(error))
            if locked:  # for good, as by who waits for CUDA, or for the microseconds of a record
                time.sleep(_HELD_S)
            if memory.read(at, len(head)) != head:  # it recorded meanwhile: nothing is known
                problems.clear()
                break
            if recording is not None:
                return json.dumps(recording).encode()
        misfits += problems[:1]
        time.sleep(_AGAIN_S)
    if len(misfits) == _TRIES:
        message = f"it is laid out otherwise than in torch 2.8 to 2.15: {misfits[0]}"
        raise UnknownRecorderError(message)
    if sorted({*begun}) == begun:
        raise RecordedMeanwhileError("it recorded operations each time it was read")
    raise UnknownRecorderError("it was busy each time it was read; run attach again")


def _recording(memory: Memory, layout: Layout, at: int, head: bytes) -> dict[str, Any]:
    reader, members = Reader(memory, at, head), layout.recorder
    recording: dict[str, Any] = {
        "version": _VERSION,
        "comm_lib_version": reader.string(at + members["comm_lib_version_"]),
        "pg_config": _groups(reader, at + members["pg_name_to_ranks_"]),
        "pg_status": _statuses(reader, at + members["all_pg_status_"]),
    }
    entries = _entries(memory, reader, layout, at)
    if entries:  # torch leaves it out as well
        recording["entries"] = entries
    return {**recording, "nccl_comm_state": {}}


def _groups(reader: Reader, at: int) -> dict[str, dict[str, str]]:
    groups = {}
    for value in reader.nodes(at):
        description, name = reader.string(value), reader.string(value + 32)
        ranks = f"[{', '.join(map(str, reader.vector(value + 64, 'Q')))}]"
        groups[name] = {"desc": description, "name": name, "ranks": ranks}
    return groups


def _statuses(reader: Reader, at: int) -> dict[str, dict[str, str]]:
    statuses = {}
    for value in reader.nodes(at):
        number, status = reader.word(value), reader.word(value + 8)
        enqueued, started, completed = struct.unpack("<3q", reader.bytes_at(status, 24))
        statuses[str(number)] = {
            "last_enqueued_collective": str(enqueued),
            "last_started_collective": str(started),
            "last_completed_collective": str(completed),
        }
    return statuses


def _entries(memory: Memory, reader: Reader, layout: Layout, at: int) -> list[dict[str, Any]]:
    """Return those since the last reset, the oldest first."""
    members, members_of_entry = layout.recorder, layout.entry
    begin, end, _room = struct.unpack("<QQQ", reader.bytes_at(at + members["entries_"], 24))
    following, newest = (reader.word(at + members[name]) for name in ("next_", "id_"))
    count, remainder = divmod(end - begin, layout.entry_bytes)
    if remainder or not 0 <= count <= _MOST_ENTRIES or following > count:
        raise NotAnObjectError(f"a ring of {end - begin} bytes")
    within = Reader(memory, begin, memory.read(begin, end - begin) if count else b"")
    order = [*range(following, count), *range(following)]
    addresses = [begin + layout.entry_bytes * number for number in order]
    if "reset_epoch_" in members:
        epoch = reader.word(at + members["reset_epoch_"])
        in_entry = members_of_entry["reset_epoch_"]
        addresses = [entry for entry in addresses if within.word(entry + in_entry) == epoch]
    entries = [_entry(within, members_of_entry, entry) for entry in addresses]
    expected = list(range(newest - len(entries), newest))
    if [entry["record_id"] for entry in entries] != expected:
        raise NotAnObjectError("entries out of their order")
    return entries


def _entry(reader: Reader, members: dict[str, int], at: int) -> dict[str, Any]:
    def number(name: str) -> int:
        return reader.word(at + members[name])

    def text(name: str, further: int = 0) -> str:
        return reader.string(at + members[name] + further)

    def flag(name: str) -> bool:
        value = reader.bytes_at(at + members[name], 1)[0]
        if value > 1:
            raise NotAnObjectError(f"{name} is {value}")
        return bool(value)

    def types(name: str) -> list[str]:
        return [_type(code) for code in reader.vector(at + members[name], "b")]

    started, completed = (
        _optional(reader.bytes_at(at + members[name], 16), "<qB")
        for name in ("time_discovered_started_", "time_discovered_completed_")
    )
    state = "scheduled" if started is None else "started"
    duration = _optional(reader.bytes_at(at + members["duration_"], 8), "<fB")
    sizes = list(reader.small_vector(at + members["sizes_"]))
    inputs = _shapes(reader.small_vector(at + members["input_dims_"]), sizes)
    outputs = _shapes(reader.small_vector(at + members["output_dims_"]), sizes)
    entry: dict[str, Any] = {
        "record_id": number("id_"),
        "pg_id": number("pg_id_"),
        "process_group": [text("pg_name_", 32), text("pg_name_")],
        "thread_name": text("thread_name_"),
        "thread_id": str(number("thread_id_")),
        "collective_seq_id": number("collective_seq_id_"),
        "p2p_seq_id": number("p2p_seq_id_"),
        "op_id": number("op_id_"),
        "profiling_name": text("profiling_name_"),
        "time_created_ns": number("time_created_"),
        "input_sizes": inputs,
        "input_dtypes": types("input_dtypes_"),
        "output_sizes": outputs,
        "output_dtypes": [
            _type(code) for code in reader.vector(at + members["output_dtypes_"], "b")
        ],
        "state": state if completed is None else "completed",
        "time_discovered_started_ns": started or 0,
        "time_discovered_completed_ns": completed or 0,
        "retired": flag("retired_"),
        "timeout_ms": number("timeout_ms_"),
        "is_p2p": flag("isP2P_"),
    }
    if duration is not None:
        entry["duration_ms"] = duration
    return entry


def _optional(raw: bytes, form: str) -> Any:
    """Return the value of a `std::optional`, None without one."""
    value, has = struct.unpack_from(form, raw)
    if has > 1:
        raise NotAnObjectError(f"an optional value that is there {has} times")
    return value if has else None


def _shapes(dimensions: tuple[int, ...], sizes: list[int]) -> list[list[int]]:
    """Take the sizes of tensors with so many dimensions off the front of `sizes`."""
    shapes = []
    for count in dimensions:
        if not 0 <= count <= len(sizes):
            raise NotAnObjectError(f"a tensor of {count} dimensions")
        shapes.append(sizes[:count])
        del sizes[:count]
    return shapes


def _type(code: int) -> str:
    return _TYPES[code] if 0 <= code < len(_TYPES) else f"dtype {code}"
