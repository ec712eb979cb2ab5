"""Entry times of collectives that a rank's flight recorder kept, as instants of the model.

The files are written by `grpo_doctor_probes.record.entrytimes`. An instant carries its group in
`args`, its sequence number in `value`, and lies on a thread slot of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from grpo_doctor.trace.columns import Rows
from grpo_doctor.trace.jsonfile import BAD_JSON, MAX_TIME_NS
from grpo_doctor.trace.model import Kind, Process, Spans
from grpo_doctor.trace.processes import NameTable, Recording
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.rundir import ENTRIES_SUFFIX, SPANS_SUFFIX

SOURCE = "flight recorder"
_MAX_LINE_BYTES = 64 << 20
_THREAD = layout.THREAD_SLOTS


class _Entry(msgspec.Struct, gc=False):
    record_id: int = -1
    collective_seq_id: int = 0
    profiling_name: str = "collective"
    process_group: list[str] = []
    time_created_ns: int = 0
    is_p2p: bool = False


class _Dump(msgspec.Struct):
    entries: list[_Entry] = []


class _Look(msgspec.Struct):
    monotonic_ns: int
    unix_ns: int
    dump: _Dump


_decoder = msgspec.json.Decoder(_Look)


def entry_rows(recording: Recording, process: Process, table: NameTable, shift_ns: int) -> Spans:
    """Return one instant per collective that the process entered; none without a file."""
    rows = Rows()
    for entry, entered_ns in _entries(recording):
        moment = entered_ns + shift_ns
        if not 0 <= entered_ns < MAX_TIME_NS or entry.is_p2p:
            continue
        args = msgspec.json.encode({"group": _group(entry), "source": SOURCE}).decode()
        name, args_id = table.ids(entry.profiling_name[:64], args)
        own = {"process": process.index, "thread": _THREAD, "args": args_id}
        value = float(entry.collective_seq_id)
        rows.add(Kind.INSTANT, name, moment, moment, value=value, **own)
    return rows.spans()


def _group(entry: _Entry) -> str:
    """The name of the group; that of the default one is a number, replaced by its description."""
    name, *description = entry.process_group or ["world"]
    return (description[-1] if description == ["default_pg"] else name)[:64]


def _entries(recording: Recording) -> Iterator[tuple[_Entry, int]]:
    """Each entry once, with the local time at which it was made; damaged lines are left out."""
    path = recording.path
    path = path.with_name(path.name.removesuffix(SPANS_SUFFIX) + ENTRIES_SUFFIX)
    if not path.is_file():
        return
    newest = -1
    with path.open("rb") as file:
        while line := file.readline(_MAX_LINE_BYTES):
            try:
                look = _decoder.decode(line)
            except BAD_JSON:  # cut off by a full disk or a kill
                continue
            for entry in look.dump.entries:
                if entry.record_id > newest:
                    newest = entry.record_id
                    yield entry, entry.time_created_ns - look.unix_ns + look.monotonic_ns
