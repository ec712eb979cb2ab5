"""The recorder read out of memory, against what torch itself says of the same recorder.

Gloo's recorder and NCCL's are one template, so a rank without a GPU has one to read.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_probes.flight import inject, injection, recorderlock, recorders
from grpo_doctor_probes.flight.borrow import TargetProcess
from grpo_doctor_probes.flight.recorderlock import UnknownRecorderError
from grpo_doctor_probes.flight.ring import ENTRY_BYTES, ENTRY_MEMBERS, read_ring
from grpo_doctor_probes.memory.access import mapped
from tests.unit.probes.flight.sleeper import MACHINE, lender_of
from tests.unit.probes.flight.test_injection import LOOK, member

pytest.importorskip("torch.distributed", reason="needs torch to run a rank")
pytestmark = pytest.mark.skipif(MACHINE.name != "x86_64", reason="it is read on x86-64 only")

RANK = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
other = dist.new_group([0], group_desc="a group with a description of its own")
for _ in range(int(sys.argv[2])):
    dist.all_reduce(torch.ones(3, 5, dtype=torch.bfloat16))
    dist.broadcast(torch.ones(4, dtype=torch.int64), 0, group=other)
    dist.all_gather([torch.ones(2, 3, 4)], torch.ones(2, 3, 4))
    dist.barrier()
print("done", flush=True)
sys.stdin.readline()
"""


@contextmanager
def rank(folder: Path, rounds: int, ring: int) -> Iterator[int]:
    command = [sys.executable, "-c", RANK, str(folder / "store"), str(rounds)]
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": str(ring), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"done\n"
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A rank of which some entries were overwritten."""
    with rank(tmp_path_factory.mktemp("rank"), 7, 10) as pid:
        yield pid


def recorder_of(lender: TargetProcess) -> int:
    (recorder,) = recorders.recorders(mapped(lender.pid), lender.memory)
    answer = recorderlock.recorder_at(lender.memory, MACHINE.name, recorder.function)
    assert answer
    return answer


def read(pid: int) -> dict[str, Any]:
    with lender_of(pid) as lender:
        answer: dict[str, Any] = json.loads(
            read_ring(lender.memory, MACHINE.name, recorder_of(lender))
        )
    return answer


def test_it_is_what_torch_says(working: int) -> None:
    recording = json.loads(inject(member(working), LOOK, at_most_s=60).data)
    assert len(recording["entries"]) == 10
    assert recording["entries"][-1]["record_id"] == 27
    assert read(working) == recording


def test_the_recorder_of_a_device_is_read_and_nothing_is_called(
    working: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def borrow(*_: object, **__: object) -> None:
        raise AssertionError("a thread was borrowed")

    monkeypatch.setattr(recorders, "NCCL_BACKEND", "fr")  # this rank has no other one
    monkeypatch.setattr(injection, "Borrowed", borrow)
    dump = inject(member(working), LOOK, at_most_s=60)
    assert (dump.source, dump.pause_ms, dump.problem) == ("memory", 0.0, "")
    assert json.loads(dump.data) == read(working)


@pytest.mark.slow
def test_a_ring_that_is_not_full_yet(tmp_path: Path) -> None:
    with rank(tmp_path, 1, 100) as pid:
        recording = json.loads(inject(member(pid), LOOK, at_most_s=60).data)
        assert [entry["record_id"] for entry in recording["entries"]] == [0, 1, 2, 3]
        assert read(pid) == recording


def test_gloos_entries_have_no_events_to_be_asked(working: int) -> None:
    with lender_of(working) as lender:
        memory, recorder = lender.memory, recorder_of(lender)
        begin = int.from_bytes(memory.read(recorder + 48, 8), "little")
        for number in range(10):
            assert memory.read(begin + ENTRY_BYTES * number + 160, 16) == bytes(16)


@contextmanager
def written(lender: TargetProcess, at: int, value: bytes) -> Iterator[None]:
    """The rank's memory with other bytes there for a while."""
    original = lender.memory.read(at, len(value))
    lender.memory.write(at, value)
    try:
        yield
    finally:
        lender.memory.write(at, original)


def entries_in(lender: TargetProcess) -> Any:
    answer = json.loads(read_ring(lender.memory, MACHINE.name, recorder_of(lender)))
    return answer.get("entries")


STARTED, COMPLETED, DURATION, RETIRED = (
    dict(ENTRY_MEMBERS)[name]
    for name in ("time_discovered_started_", "time_discovered_completed_", "duration_", "retired_")
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
    working: int, members: dict[int, bytes], expected: tuple[Any, ...]
) -> None:
    with lender_of(working) as lender, ExitStack() as stack:
        begin = int.from_bytes(lender.memory.read(recorder_of(lender) + 48, 8), "little")
        for member_, value in {STARTED: bytes(9), COMPLETED: bytes(9), DURATION: bytes(5)}.items():
            at = begin + member_
            stack.enter_context(written(lender, at, members.get(member_, value)))
        first = next(entry for entry in entries_in(lender) if entry["record_id"] == 20)
    keys = ("state", "time_discovered_started_ns", "time_discovered_completed_ns")
    assert (*(first[key] for key in keys), first.get("duration_ms")) == expected


@pytest.mark.parametrize(
    ("member_", "value"),
    [
        (STARTED, struct.pack("<qB", 1234, 2)),
        (DURATION, struct.pack("<fB", 0.5, 2)),
        (RETIRED, b"\2"),
    ],
)
def test_a_flag_that_is_neither_yes_nor_no_is_of_another_layout(
    working: int, member_: int, value: bytes
) -> None:
    with lender_of(working) as lender:
        begin = int.from_bytes(lender.memory.read(recorder_of(lender) + 48, 8), "little")
        with (
            written(lender, begin + member_, value),
            pytest.raises(UnknownRecorderError, match="laid out otherwise"),
        ):
            entries_in(lender)


def test_a_ring_without_entries_is_left_out(working: int) -> None:
    with lender_of(working) as lender:
        recorder = recorder_of(lender)
        begin = lender.memory.read(recorder + 48, 8)
        with written(lender, recorder + 56, begin), written(lender, recorder + 80, bytes(8)):
            assert entries_in(lender) is None
        assert len(entries_in(lender)) == 10


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (48, b"\1"),  # the ring begins elsewhere
        (88, b"\0"),  # the newest entry has another number
        (168 + 32, b"\xff\xff"),  # a map has more groups than it says
        (16 + 8, b"\2"),  # the mutex is of another kind
        (80, b"\xff\xff"),  # the next entry is none
    ],
    ids=["begin", "numbers", "map", "mutex", "next"],
)
def test_another_layout_is_told(working: int, at: int, value: bytes) -> None:
    with lender_of(working) as lender:
        recorder = recorder_of(lender)
        original = lender.memory.read(recorder + at, len(value))
        lender.memory.write(recorder + at, value)
        try:
            with pytest.raises(UnknownRecorderError, match="laid out otherwise"):
                read_ring(lender.memory, MACHINE.name, recorder)
        finally:
            lender.memory.write(recorder + at, original)
    assert len(read(working)["entries"]) == 10
