"""NCCL's flight recorder read out of the memory of its process, without any call into it.

Nothing is stopped, nothing is locked, nobody's CUDA is asked. What comes out is the JSON that
torch's own `dump_nccl_trace_json` gives, but that no event is queried: an operation counts as done
since torch's watchdog saw it, which looks ten times a second unless it is itself stuck.

The layout is that of torch 2.13 to 2.15 (`tests/torch_contract` reads the wheels). Another one is
told by what does not fit: sizes, flags, the numbers of the entries. The recorder may be at work
meanwhile: what was read counts only if it has recorded nothing in between.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from typing import Any

from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight import recorderlock
from grpo_doctor_probes.flight.borrow import TargetProcess
from grpo_doctor_probes.flight.recorderlock import UnknownRecorderError, look
from grpo_doctor_probes.flight.recorders import Recorder
from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.cplusplus import NotAnObjectError, Reader

RECORDER_BYTES = (288, 296)  # 2.15 knows its rank too
RECORDER_MEMBERS = (
    ("enabled_", 0), ("mutex_", 8), ("entries_", 48), ("max_entries_", 72), ("next_", 80),
    ("id_", 88), ("reset_epoch_", 96), ("all_pg_status_", 160), ("pg_name_to_ranks_", 208),
    ("comm_lib_version_", 256),
)  # fmt: skip
ENTRY_BYTES = 512
ENTRY_MEMBERS = (
    ("id_", 0), ("reset_epoch_", 8), ("pg_id_", 16), ("pg_name_", 24), ("collective_seq_id_", 88),
    ("p2p_seq_id_", 96), ("op_id_", 104), ("profiling_name_", 112), ("time_created_", 176),
    ("timeout_ms_", 184), ("isP2P_", 192), ("duration_", 196), ("time_discovered_started_", 208),
    ("time_discovered_completed_", 224), ("input_dims_", 240), ("input_dtypes_", 288),
    ("output_dims_", 312), ("output_dtypes_", 360), ("sizes_", 384), ("thread_id_", 464),
    ("thread_name_", 472), ("retired_", 504),
)  # fmt: skip
_AT = dict(RECORDER_MEMBERS)
_IN = dict(ENTRY_MEMBERS)
_VERSION = "2.10"  # of the format
_HEAD_BYTES = 288
_MOST_ENTRIES = 20_000  # ten times torch's default
_TRIES, _AGAIN_S = 5, 0.01
_HELD_S = 0.05
_TYPES = (
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf",
    "ComplexFloat", "ComplexDouble", "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16", "QUInt4x2",
    "QUInt2x4", "Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16", "Float8_e5m2",
    "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "UInt16", "UInt32", "UInt64",
)  # fmt: skip
_LOCKED_AT_MOST_S = 0.3  # a record holds the mutex for microseconds
_READS_WITHIN_S = 5.0  # 0.1 s for 2,000 entries, and more on a machine with no core to spare


def read_ring(memory: Memory, machine: str, recorder: int) -> bytes:
    """What the recorder at that address has, as JSON.

    Raises:
        UnknownRecorderError: it is laid out otherwise, or it never stood still.
        OSError: the memory can't be read.
    """
    problem: Exception | None = None
    for _ in range(_TRIES):
        before = memory.read(recorder, _HEAD_BYTES)
        locked = look(memory, machine, recorder).locked
        try:
            recording = _recording(memory, recorder, before)
        except (NotAnObjectError, OSError, struct.error) as error:
            problem = error
        else:
            if locked:  # for good, as by who waits for CUDA, or for the microseconds of a record
                time.sleep(_HELD_S)
            if memory.read(recorder, _HEAD_BYTES) == before:
                return json.dumps(recording).encode()
        time.sleep(_AGAIN_S)
    if problem is not None:
        message = f"it is laid out otherwise than in torch 2.13 to 2.15: {problem}"
        raise UnknownRecorderError(message)
    raise UnknownRecorderError("it was at work each time that it was read")


def _recording(memory: Memory, recorder: int, head: bytes) -> dict[str, Any]:
    reader = Reader(memory, recorder, head)
    recording: dict[str, Any] = {
        "version": _VERSION,
        "comm_lib_version": reader.string(recorder + _AT["comm_lib_version_"]),
        "pg_config": _groups(reader, recorder + _AT["pg_name_to_ranks_"]),
        "pg_status": _statuses(reader, recorder + _AT["all_pg_status_"]),
    }
    entries = _entries(memory, reader, recorder)
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


def _entries(memory: Memory, reader: Reader, recorder: int) -> list[dict[str, Any]]:
    """Those since the last reset, the oldest first."""
    begin, end, _room = struct.unpack("<QQQ", reader.bytes_at(recorder + _AT["entries_"], 24))
    following, newest, epoch = (
        reader.word(recorder + _AT[name]) for name in ("next_", "id_", "reset_epoch_")
    )
    count, remainder = divmod(end - begin, ENTRY_BYTES)
    if remainder or not 0 <= count <= _MOST_ENTRIES or following > count:
        raise NotAnObjectError(f"a ring of {end - begin} bytes")
    within = Reader(memory, begin, memory.read(begin, end - begin) if count else b"")
    order = [*range(following, count), *range(following)]
    addresses = [begin + ENTRY_BYTES * number for number in order]
    current = [at for at in addresses if within.word(at + _IN["reset_epoch_"]) == epoch]
    entries = [_entry(within, at) for at in current]
    expected = list(range(newest - len(entries), newest))
    if [entry["record_id"] for entry in entries] != expected:
        raise NotAnObjectError("entries out of their order")
    return entries


def _entry(reader: Reader, at: int) -> dict[str, Any]:
    def number(name: str) -> int:
        return reader.word(at + _IN[name])

    def text(name: str, further: int = 0) -> str:
        return reader.string(at + _IN[name] + further)

    def flag(name: str) -> bool:
        value = reader.bytes_at(at + _IN[name], 1)[0]
        if value > 1:
            raise NotAnObjectError(f"{name} is {value}")
        return bool(value)

    started, completed = (
        _optional(reader.bytes_at(at + _IN[name], 16), "<qB")
        for name in ("time_discovered_started_", "time_discovered_completed_")
    )
    state = "scheduled" if started is None else "started"
    duration = _optional(reader.bytes_at(at + _IN["duration_"], 8), "<fB")
    sizes = list(reader.small_vector(at + _IN["sizes_"]))
    inputs = _shapes(reader.small_vector(at + _IN["input_dims_"]), sizes)
    outputs = _shapes(reader.small_vector(at + _IN["output_dims_"]), sizes)
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
        "input_dtypes": [_type(code) for code in reader.vector(at + _IN["input_dtypes_"], "b")],
        "output_sizes": outputs,
        "output_dtypes": [_type(code) for code in reader.vector(at + _IN["output_dtypes_"], "b")],
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
    """The value of a `std::optional`, None without one."""
    value, has = struct.unpack_from(form, raw)
    if has > 1:
        raise NotAnObjectError(f"an optional value that is there {has} times")
    return value if has else None


def _shapes(dimensions: tuple[int, ...], sizes: list[int]) -> list[list[int]]:
    """Takes the sizes of tensors with so many dimensions off the front of `sizes`."""
    shapes = []
    for count in dimensions:
        if not 0 <= count <= len(sizes):
            raise NotAnObjectError(f"a tensor of {count} dimensions")
        shapes.append(sizes[:count])
        del sizes[:count]
    return shapes


def _type(code: int) -> str:
    return _TYPES[code] if 0 <= code < len(_TYPES) else f"dtype {code}"


def dump_from_memory(
    process: TargetProcess, recorder: Recorder, member: Member, deadline: float
) -> FlightDump | None:
    """The dump, or one that says why there is none; None for a recorder that may be asked.

    Raises OSError where the memory can't be read.
    """
    if not recorder.has_events:
        return None
    empty = FlightDump("ptrace", member.rank, member.pid, recorder.backend, time.time_ns())
    try:
        data = within(_READS_WITHIN_S, lambda: _ring_json(process, recorder))
    except TimeoutError:
        return replace(empty, problem="its memory gave no answer in time")
    if data:
        return replace(empty, source="memory", data=data)
    until = min(deadline, time.monotonic() + _LOCKED_AT_MOST_S)
    machine, function = process.machine.name, recorder.function
    reason = recorderlock.why_not(process.memory, process.pid, machine, function, until)
    return replace(empty, problem=reason) if reason else None


def _ring_json(process: TargetProcess, recorder: Recorder) -> bytes:
    """All that a recorder has, out of memory; nothing where that can't be told."""
    machine = process.machine.name
    try:
        at = recorderlock.recorder_at(process.memory, machine, recorder.function)
        if at is None or not recorderlock.look(process.memory, machine, at).on:
            return b""
        return read_ring(process.memory, machine, at)
    except UnknownRecorderError:
        return b""
