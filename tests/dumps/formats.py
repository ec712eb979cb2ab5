"""A simulated job as the dumps of its ranks, in the layout of each recorder version."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import Any

from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.simulator import Job, Rank, Record

VERSIONS = ("2.2 list", "1.4", "2.1", "2.4", "2.9", "2.10")
SIMULATED_FILE = "/job/train.py"
TORCH_FILE = "/site-packages/torch/distributed/distributed_c10d.py"
NCCL_NAMES = {"barrier": "all_reduce_barrier", "all_gather": "_all_gather_base"}


def document(
    job: Job, rank: int, version: str = "2.10", backend: str = "nccl", ring: int = 2000
) -> Any:
    """The plain data of one rank's dump, as the pickle of that version has it."""
    own = job.ranks[rank]
    names = [name for name, members in job.groups.items() if rank in members]
    ids = {name: number for number, name in enumerate(names)}
    entries = [
        _entry(job, rank, record, ids[record.call.group], version, backend)
        for record in own.records[-ring:]
    ]
    if version == "2.2 list":
        return entries
    gloo = backend == "gloo"
    config = {
        (ids[n] if version == "1.4" else n): {
            "name": n,
            "desc": description(n),
            "ranks": str(list(job.groups[n])),
        }
        for n in names
    }
    content: dict[str, Any] = {
        "version": version,
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}} if gloo else config,
        "entries": entries,
    }
    if version in {"2.4", "2.9", "2.10"}:
        content["pg_status"] = {str(ids[n]): _status(own, n) for n in names if n in own.collectives}
    if version in {"2.9", "2.10"} and not gloo:
        content["nccl_version" if version == "2.9" else "comm_lib_version"] = "2.27.5"
    return content


def description(name: str) -> str:
    """The default group is called so, and groups without a description are "undefined"."""
    return "default_pg" if name == "0" else "undefined" if name.isdecimal() else name


def _entry(
    job: Job, rank: int, record: Record, group_id: int, version: str, backend: str
) -> dict[str, Any]:
    call, done, gloo = record.call, record.completed_ns > 0, backend == "gloo"
    members = list(job.groups[call.group])
    name = NCCL_NAMES.get(call.op, call.op) if not gloo else call.op
    if call.peer is not None:
        arrow = "->" if call.op == "send" else "<-"
        name = f"{call.op} {members.index(rank)}{arrow}{members.index(call.peer)}"
    output_elements = call.elements * (len(members) if call.op == "all_gather" else 1)
    empty = call.op == "barrier" and gloo
    entry: dict[str, Any] = {
        "pg_id": group_id,
        "profiling_name": f"{backend}:{name}",
        "input_sizes": [] if empty else [[call.elements]],
        "output_sizes": [] if empty else [[output_elements]],
        "state": "scheduled" if gloo else "completed" if done else "started",
        "retired": done,
        "frames": [
            {"name": call.op, "filename": TORCH_FILE, "line": 3000},
            {"name": "step", "filename": SIMULATED_FILE, "line": call.line},
        ],
    }
    number = record.number
    if version == "2.2 list":
        created_us = record.created_ns // 1000
        return {**entry, "seq_id": number, "time_created_us": created_us, "id": record.record}
    entry |= {
        "record_id": record.record,
        "op_id": record.op_id,
        "time_created_ns": record.created_ns,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": record.completed_ns if done and not gloo else None,
    }
    if version == "1.4":
        return {**entry, "seq_id": number}
    transfers = call.peer is not None
    return {
        **entry,
        "process_group": (call.group, description(call.group)),
        "collective_seq_id": 0 if transfers else number,
        "p2p_seq_id": number if transfers else 0,
        "is_p2p": transfers,
        "input_dtypes": [] if empty else [call.dtype],
        "output_dtypes": [] if empty else [call.dtype],
        "timeout_ms": 600_000,
        "thread_id": "1",
        "thread_name": "MainThread",
    }


def _status(rank: Rank, group: str) -> dict[str, int]:
    own = [r for r in rank.records if r.call.group == group and r.call.peer is None]
    done = [r.number for r in own if r.completed_ns]
    return {
        "last_enqueued_collective": max((r.number for r in own), default=-1),
        "last_started_collective": -1,
        "last_completed_collective": max(done, default=-1),
    }


def as_json(content: Any) -> bytes:
    """As torch writes JSON: sorted keys, no frames, 0 for no time, counters as text."""
    content = json.loads(json.dumps(content))
    entries = content["entries"] if isinstance(content, dict) else content
    for entry in entries:
        entry.pop("frames", None)
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            if key in entry:
                entry[key] = entry[key] or 0
    if isinstance(content, dict):
        for status in content.get("pg_status", {}).values():
            status.update({key: str(value) for key, value in status.items()})
        if not entries:
            del content["entries"]
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def dumps(
    job: Job,
    version: str = "2.10",
    backend: str = "nccl",
    *,
    ring: int = 2000,
    without: Iterable[int] = (),
    after_s: float = 60.0,
    named: bool = True,
    form: str = "pickle",
) -> list[FlightDump]:
    """A dump of every rank but `without`, taken `after_s` after the last thing that happened."""
    last = max(rank.now_ns for rank in job.ranks.values())
    left_out = set(without)
    flight_dumps = []
    for rank in job.ranks:
        if rank in left_out:
            continue
        data = document(job, rank, version, backend, ring)
        raw = pickle.dumps(data, protocol=2) if form == "pickle" else as_json(data)
        name = f"file:/dumps/trace_rank_{rank}" if named else f"file:/dumps/{rank * 7919 % 997:x}"
        at = last + int(after_s * 1e9)
        flight_dumps.append(FlightDump(name, rank if named else None, at_unix_ns=at, data=raw))
    return flight_dumps
