"""A folder of dumps as an operator has it: written by several versions of the recorder, at several
moments, some of them empty, cut off, of another job, or no dumps at all.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.formats import as_json, document
from tests.dumps.simulator import Call, Halt, Job, Program, Rank, job

VERSIONS = ("2.1", "2.3", "2.4", "2.5", "2.9", "2.10")
SECOND_NS = 1_000_000_000
NOT_A_DUMP = b"\x7fELF\x02\x01\x01 a core file"


@dataclass
class Folder:
    """Files by rank or name, and when each was written."""

    files: dict[int | str, bytes] = field(default_factory=dict)
    written_ns: dict[int | str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Puts them there."""
        for name, data in self.files.items():
            file = path / (f"trace_rank_{name}" if isinstance(name, int) else name)
            file.write_bytes(data)
            at_ns = self.written_ns.get(name, 0)
            if at_ns:
                os.utime(file, ns=(at_ns, at_ns))

    def dumps(self) -> list[FlightDump]:
        """The same as if they had been read."""
        return [
            FlightDump(f"file:/dumps/{name}", name if isinstance(name, int) else None,
                       at_unix_ns=self.written_ns.get(name, 0), data=data)
            for name, data in self.files.items()
        ]  # fmt: skip

    def cut(self, rank: int) -> None:
        """A full disk ended the file in its middle."""
        self.files[rank] = self.files[rank][: len(self.files[rank]) * 2 // 3]


def mixed(dumps: Collection[FlightDump], seed: int) -> Folder:
    """Each rank's dump by a recorder of another version, as a pickle or in JSON."""
    draw = random.Random(seed)
    folder = Folder()
    for dump in dumps:
        data = as_version(plain(dump.data), draw.choice(VERSIONS))
        rank = dump.rank if dump.rank is not None else dump.source
        folder.files[rank] = packed(data, as_pickle=draw.random() < 0.6)
        folder.written_ns[rank] = dump.at_unix_ns
    return folder


def plain(data: bytes) -> Any:
    """The plain data of a dump that we made."""
    return pickle.loads(data) if data.startswith(b"\x80") else json.loads(data)


def packed(data: Any, *, as_pickle: bool = True) -> bytes:
    """A dump's bytes."""
    return pickle.dumps(data, protocol=2) if as_pickle else as_json(data)


def as_version(data: Any, version: str) -> Any:
    """What a recorder of that version would have written of it."""
    data = copy.deepcopy(data) | {"version": version}
    number = tuple(map(int, version.split(".")))
    for key in ("nccl_version", "comm_lib_version"):
        data.pop(key, None)
    if number >= (2, 9):
        data["comm_lib_version" if number >= (2, 10) else "nccl_version"] = "2.27.5"
    if number < (2, 4):
        data.pop("pg_status", None)
    unknown = {"thread_id", "thread_name"} if number < (2, 9) else set()
    unknown |= {"timeout_ms"} if number < (2, 4) else set()
    for entry in data["entries"]:
        for key in unknown:
            entry.pop(key, None)
    return data


def moved_in_time(data: Any, by_ns: int) -> Any:
    """The dump of a run that was so much later."""
    data = copy.deepcopy(data)
    for entry in data["entries"]:
        entry.update({k: v + by_ns for k, v in entry.items() if k.startswith("time_") and v})
    return data


def steps(ranks: int, *, halts: int | None = None) -> Job:
    """A job of five minutes, with rounds of five seconds; one rank may halt in the last."""

    def program(rank: int) -> Program:
        calls = [
            Call("all_reduce", elements=4096, line=10, compute_ns=5 * SECOND_NS),
            Call("all_reduce", elements=1, line=12),
            Call("all_gather", "3", 64, line=13),
            Call("broadcast", elements=128, line=14),
        ]
        last: list[Call | Halt] = [calls[0], Halt()] if rank == halts else list(calls)
        return [*calls * 60, *last]

    groups = {"0": range(ranks), "3": range(ranks)}
    return job(groups, {rank: program(rank) for rank in range(ranks)}).run()


def at_moments(job: Job, when_ns: Mapping[int, int], **options: Any) -> Folder:
    """The dump of every rank as it was at its moment, and written then."""
    folder = Folder()
    for rank, at_ns in when_ns.items():
        folder.files[rank] = packed(document(_as_of(job, rank, at_ns), rank, **options))
        folder.written_ns[rank] = at_ns
    return folder


def _as_of(job: Job, rank: int, at_ns: int) -> Job:
    records = [
        replace(record, completed_ns=record.completed_ns if record.completed_ns <= at_ns else 0)
        for record in job.ranks[rank].records
        if record.created_ns <= at_ns
    ]
    counted: dict[str, int] = {}
    for record in records:
        counted[record.call.group] = max(counted.get(record.call.group, 0), record.number)
    earlier = Rank(job.ranks[rank].program, records=records, collectives=counted)
    return Job(job.groups, {**job.ranks, rank: earlier})
