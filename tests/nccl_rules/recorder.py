"""What the flight recorder of each rank would have written of a world, at one moment."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.formats import as_json
from tests.nccl_rules.programs import Groups
from tests.nccl_rules.world import NEVER, Call, World

FILE = "/job/train.py"
TORCH = "/site-packages/torch/distributed/distributed_c10d.py"
NAMES = {
    "all_gather": "_all_gather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "barrier": "all_reduce_barrier",
}
DESCRIPTIONS = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}
VERSIONS = ("2.4", "2.9", "2.10")


@dataclass(frozen=True)
class Recorder:
    """How it was set up. `active`: only what is not done was dumped. `entries` False: only the
    counters, which is what can be asked of a living rank. `timing`: starts are recorded.
    """

    version: str = "2.10"
    form: str = "pickle"
    ring: int = 2000
    active: bool = False
    entries: bool = True
    timing: bool = False
    described: bool = True


def _entry(
    world: World, groups: Groups, call: Call, ids: dict[str, int], at_s: float, recorder: Recorder
) -> dict[str, Any]:
    step = call.step
    members = list(world.groups[step.group])
    done = call.seen_s is not None and call.seen_s <= at_s
    started = call.start_s is not None and call.start_s <= at_s
    name = NAMES.get(step.op, step.op)
    if step.peer is not None:
        arrow = "->" if step.op == "send" else "<-"
        name = f"{step.op} {members.index(call.rank)}{arrow}{members.index(step.peer)}"
    state = "completed" if done else "started" if started and recorder.timing else "scheduled"
    begun_ns = _ns(call.start_s) if started and recorder.timing else None
    transfers = step.peer is not None
    entry = {
        "record_id": call.record,
        "pg_id": ids[step.group],
        "process_group": (step.group, _described(groups, step.group, recorder)),
        "collective_seq_id": (
            call.number if not transfers else world.ranks[call.rank].collectives.get(step.group, 0)
        ),
        "p2p_seq_id": call.transfers,
        "op_id": call.number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": _ns(call.created_s),
        "input_sizes": [list(step.input_size)],
        "output_sizes": [list(step.output_size)],
        "input_dtypes": ["BFloat16"],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": begun_ns,
        "time_discovered_completed_ns": _ns(call.seen_s) if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": transfers,
        "thread_id": "1",
        "thread_name": "python3",
        "frames": [
            {"name": step.op, "filename": TORCH, "line": 3000},
            {"name": "step", "filename": FILE, "line": step.line},
        ],
    }
    if step.batch:  # the recorder follows only the end of a batch
        entry |= {"state": "scheduled", "retired": False}
        entry |= {"time_discovered_completed_ns": None, "time_discovered_started_ns": None}
    return entry


def _ns(seconds: float | None) -> int:
    return int((seconds or 0.0) * 1e9)


def _described(groups: Groups, name: str, recorder: Recorder) -> str:
    kind = groups.kinds[name]
    if kind == "default_pg":
        return kind
    return DESCRIPTIONS.get(kind, "undefined") if recorder.described else "undefined"


def document(
    world: World, groups: Groups, rank: int, at_s: float, recorder: Recorder
) -> dict[str, Any]:
    """The plain data of one rank's dump, taken at that time."""
    own = world.ranks[rank]
    names = [name for name, members in groups.members.items() if rank in members]
    ids = {name: number for number, name in enumerate(names)}
    recorded = [call for call in own.calls if call.created_s <= at_s]
    rows: list[dict[str, Any]] = []
    number = 0
    for index, call in enumerate(recorded):
        row = _entry(world, groups, call, ids, at_s, recorder) | {"record_id": number}
        rows.append(row)
        number += 1
        following = recorded[index + 1] if index + 1 < len(recorded) else None
        if call.step.batch and (following is None or following.step.batch != call.step.batch):
            rows.append(_end_of_batch(call, row, number, at_s))
            number += 1
    rows = rows[-recorder.ring :]
    if recorder.active:
        rows = [row for row in rows if row["state"] != "completed"]
    status = {str(ids[name]): _status(recorded, name, at_s) for name in names}
    content: dict[str, Any] = {
        "version": recorder.version,
        "pg_config": {
            name: {
                "name": name,
                "desc": _described(groups, name, recorder),
                "ranks": str(list(groups.members[name])),
            }
            for name in names
        },
        "pg_status": {key: counts for key, counts in status.items() if counts},
        "entries": rows if recorder.entries else [],
    }
    if recorder.version != "2.4":
        content["nccl_version" if recorder.version == "2.9" else "comm_lib_version"] = "2.27.5"
    return content


def _end_of_batch(call: Call, row: dict[str, Any], number: int, at_s: float) -> dict[str, Any]:
    done = call.seen_s is not None and call.seen_s <= at_s
    return row | {
        "record_id": number,
        "profiling_name": "nccl:coalesced",
        "state": "completed" if done else "scheduled",
        "retired": done,
        "time_discovered_completed_ns": _ns(call.seen_s) if done else None,
        "input_sizes": [],
        "output_sizes": [],
        "input_dtypes": [],
        "output_dtypes": [],
    }


def _status(recorded: Sequence[Call], group: str, at_s: float) -> dict[str, int]:
    """As torch counts: of a transfer the number among transfers."""
    own = [call for call in recorded if call.step.group == group]
    if not own:
        return {}
    done = [call for call in own if call.seen_s is not None and call.seen_s <= at_s]
    return {
        "last_enqueued_collective": own[-1].number,
        "last_started_collective": -1,
        "last_completed_collective": done[-1].number if done else -1,
    }


def dump(
    world: World, groups: Groups, rank: int, at_s: float, recorder: Recorder, taken_s: float
) -> FlightDump:
    """A file of what the rank had recorded at `at_s`, written at `taken_s`."""
    data = document(world, groups, rank, min(at_s, NEVER), recorder)
    raw = pickle.dumps(data, protocol=2) if recorder.form == "pickle" else as_json(json_ready(data))
    return FlightDump(f"file:/dumps/trace_{rank}", rank, at_unix_ns=int(taken_s * 1e9), data=raw)


def json_ready(data: dict[str, Any]) -> Any:
    """Without what JSON has no word for."""
    return json.loads(json.dumps(data))
