"""The recorder read out of memory, against what torch itself says of the same recorder.

Gloo's recorder and NCCL's are one template, so a rank without a GPU has one to read.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight import read_recorders, recorders
from grpo_doctor_probes.flight.ring import (
    LAYOUTS,
    MUTEX_BYTES,
    RecordedMeanwhileError,
    UnknownRecorderError,
    is_on,
    read_ring,
)
from grpo_doctor_probes.memory.access import Memory, mapped
from grpo_doctor_probes.supervisor.flightenv import flight_variables, torch_version

MACHINE = os.uname().machine

RANK = """
import sys
import torch, torch.distributed as dist
from torch._C import _distributed_c10d
folder, rounds = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
other = dist.new_group([0], group_desc="a group with a description of its own")
for _ in range(rounds):
    dist.all_reduce(torch.ones(3, 5, dtype=torch.bfloat16))
    dist.broadcast(torch.ones(4, dtype=torch.int64), 0, group=other)
    dist.all_gather([torch.ones(2, 3, 4)], torch.ones(2, 3, 4))
    dist.barrier()
print("done", flush=True)
for _ in sys.stdin:
    with open(folder + "/said", "wb") as file:
        file.write(_distributed_c10d._dump_fr_trace_json(True, False))
    print("said", flush=True)
"""


@dataclass
class Rank:
    """A rank and what it says of itself."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def member(self) -> Member:
        return Member(self.process.pid, 1, 0, "rank", "python", "train.py", rank=5)

    def says(self) -> dict[str, Any]:
        """Torch's own dump, made in the rank."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(b"say\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"said\n"
        said: dict[str, Any] = json.loads((self.folder / "said").read_bytes())
        return said

    def dump(self) -> FlightDump:
        (dump,) = read_recorders(self.member, at_most_s=60)
        return dump

    def read(self) -> dict[str, Any]:
        with Memory(self.process.pid) as memory:
            read: dict[str, Any] = json.loads(read_ring(memory, MACHINE, self.recorder()))
        return read

    def recorder(self) -> int:
        with Memory(self.process.pid) as memory:
            (recorder,) = recorders.find_recorders(mapped(self.process.pid), memory)
            at = recorders.recorder_at(memory, recorder)
        assert at
        return at

    def first_entry(self) -> int:
        with Memory(self.process.pid) as memory:
            return int.from_bytes(memory.read(self.recorder() + 48, 8), "little")

    @contextmanager
    def with_bytes(self, at: int, value: bytes) -> Iterator[None]:
        """The rank's memory with other bytes there for a while."""
        with open(f"/proc/{self.process.pid}/mem", "r+b", buffering=0) as memory:  # noqa: PTH123
            memory.seek(at)
            original = memory.read(len(value))
            memory.seek(at)
            memory.write(value)
            try:
                yield
            finally:
                memory.seek(at)
                memory.write(original)


@contextmanager
def rank(folder: Path, rounds: int, ring: int) -> Iterator[Rank]:
    pytest.importorskip("torch.distributed", reason="needs torch to run a rank")
    command = [sys.executable, "-c", RANK, str(folder), str(rounds)]
    set_by_run = flight_variables({}, folder, torch_version(sys.executable), gpus=1)
    own = {"TORCH_FR_BUFFER_SIZE": str(ring), "OMP_NUM_THREADS": "1"}
    with (
        (folder / "stderr").open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env={**os.environ, **set_by_run, **own},
        ) as process,
    ):  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == b"done\n"
        try:
            yield Rank(process, folder)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rank]:
    """A rank of which some entries were overwritten."""
    with rank(tmp_path_factory.mktemp("rank"), 7, 10) as started:
        yield started


def test_it_is_what_torch_says(working: Rank) -> None:
    dump = working.dump()
    assert (dump.source, dump.backend, dump.rank, dump.problem) == ("memory", "fr", 5, "")
    assert dump.pid == working.process.pid
    said = working.says()
    assert [entry["record_id"] for entry in said["entries"]] == list(range(18, 28))
    assert json.loads(dump.data) == said


@pytest.mark.slow
def test_a_ring_that_is_not_full_yet(tmp_path: Path) -> None:
    with rank(tmp_path, 1, 100) as started:
        before = started.read()
        said = started.says()
        assert [entry["record_id"] for entry in said["entries"]] == [0, 1, 2, 3]
        # Gloo marks its last operation as done some time after the rank got its result.
        assert said in (before, started.read())


STARTED, COMPLETED, DURATION = (
    LAYOUTS["x86_64"][0].entry[name]
    for name in ("time_discovered_started_", "time_discovered_completed_", "duration_")
)
SINCE, UNTIL, LENGTH = (
    struct.pack(form, value, has)
    for form, value, has in (("<qB", 1234, 1), ("<qB", 5678, 1), ("<fB", 0.5, 1))
)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, ("scheduled", 0, 0, None)),
        ({STARTED: SINCE}, ("started", 1234, 0, None)),
        ({STARTED: SINCE, COMPLETED: UNTIL}, ("completed", 1234, 5678, None)),
        ({COMPLETED: UNTIL}, ("completed", 0, 5678, None)),
        ({DURATION: LENGTH}, ("scheduled", 0, 0, 0.5)),
    ],
)
def test_what_torchs_watchdog_has_seen_of_an_operation(
    working: Rank, members: dict[int, bytes], expected: tuple[Any, ...]
) -> None:
    first = working.first_entry()
    with ExitStack() as stack:
        for member, value in {STARTED: bytes(9), COMPLETED: bytes(9), DURATION: bytes(5)}.items():
            stack.enter_context(working.with_bytes(first + member, members.get(member, value)))
        entry = next(e for e in working.read()["entries"] if e["record_id"] == 20)
    keys = ("state", "time_discovered_started_ns", "time_discovered_completed_ns")
    assert (*(entry[key] for key in keys), entry.get("duration_ms")) == expected


def test_a_ring_without_entries_is_left_out(working: Rank) -> None:
    recorder = working.recorder()
    begin = struct.pack("<Q", working.first_entry())
    with working.with_bytes(recorder + 56, begin), working.with_bytes(recorder + 80, bytes(8)):
        assert "entries" not in working.read()
    assert len(working.read()["entries"]) == 10


# Layouts, and memory that is made up.

RECORDER = 0x50000
WHOLE: dict[str, int] = {
    "on": 1, "stacks": 0, "lock": 0, "owner": 0, "kind": 0,
    "begin": 0, "end": 0, "room": 0, "most": 2000, "next": 0,
}  # fmt: skip


class Memories:
    """A memory in which each part is as it was put there; a part is read again as the next one."""

    def __init__(self, machine: str, *heads: bytes, size: int) -> None:
        self.heads = [head.ljust(size, b"\0") for head in heads]
        self.machine = machine

    def read(self, address: int, size: int) -> bytes:
        head = self.heads.pop(0) if len(self.heads) > 1 else self.heads[0]
        return head[address - RECORDER :][:size].ljust(size, b"\0")


def head(machine: str = "x86_64", **change: int) -> bytes:
    """The first bytes of a recorder without entries."""
    facts = {**WHOLE, **change}
    mutex = struct.pack("<iIiIi", facts["lock"], 0, facts["owner"], 0, facts["kind"])
    flags = struct.pack("<BB6x", facts["on"], facts["stacks"])
    ring = struct.pack("<6Q", *(facts[n] for n in ("begin", "end", "room", "most", "next")), 0)
    return flags + mutex.ljust(MUTEX_BYTES[machine], b"\0") + ring


def memory(machine: str = "x86_64", *heads: bytes) -> Any:
    return Memories(machine, *heads, size=LAYOUTS[machine][0].recorder_bytes)


@pytest.mark.parametrize(
    "change",
    [
        {"on": 2}, {"stacks": 2}, {"lock": 3}, {"lock": -1}, {"owner": -1}, {"kind": 1},
        {"begin": 1}, {"end": 1}, {"next": 2001}, {"most": 1 << 32},
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_no_recorder(change: dict[str, int]) -> None:
    with pytest.raises(UnknownRecorderError, match="laid out otherwise"):
        is_on(memory("x86_64", head("x86_64", **change)), "x86_64", RECORDER)


def with_maps(machine: str, number: int, *, newest: int = 0) -> bytes:
    """A recorder of the layout with that number, that has no entries and no groups."""
    layout = LAYOUTS[machine][number]
    made = bytearray(head(machine).ljust(layout.recorder_bytes, b"\0"))
    made[layout.recorder["id_"] : layout.recorder["id_"] + 8] = struct.pack("<Q", newest)
    for name in ("all_pg_status_", "pg_name_to_ranks_"):
        at = layout.recorder[name] + 8
        empty = struct.pack("<QQQQQ", 0, 0, RECORDER + at, RECORDER + at, 0)
        made[at : at + len(empty)] = empty
    text = layout.recorder["comm_lib_version_"]
    made[text : text + 32] = struct.pack("<QQ16s", RECORDER + text + 16, 6, b"2.21.5")
    return bytes(made)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("number", [0, 1], ids=["2.10 to 2.15", "2.8 and 2.9"])
def test_each_layout_is_known_from_the_other(machine: str, number: int) -> None:
    recording = json.loads(
        read_ring(memory(machine, with_maps(machine, number)), machine, RECORDER)
    )
    assert recording["comm_lib_version"] == "2.21.5"
    assert (recording["pg_config"], recording["pg_status"]) == ({}, {})


@pytest.mark.parametrize(
    ("newest", "message"),
    [(range(100), "recorded operations each time"), ([0, 1] * 50, "busy each time")],
)
def test_one_that_records_at_each_look_is_given_up(newest: Sequence[int], message: str) -> None:
    """Only one that has recorded more each time is known to record."""
    states = [with_maps("x86_64", 0, newest=number) for number in newest]
    with pytest.raises(UnknownRecorderError, match=message):
        read_ring(memory("x86_64", *states), "x86_64", RECORDER)


def test_one_that_fits_no_layout_while_it_records_is_at_work_and_not_unknown() -> None:
    """What was read of it may be of two states."""
    states = [with_maps("x86_64", 0, newest=number)[:200] for number in range(100)]
    with pytest.raises(RecordedMeanwhileError):
        read_ring(memory("x86_64", *states), "x86_64", RECORDER)
    with pytest.raises(UnknownRecorderError, match="laid out otherwise"):
        read_ring(memory("x86_64", states[0]), "x86_64", RECORDER)
