"""Asking a process for its recorder: by version of torch, and everything that is refused."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import FlightDump, Member, ProcessLook
from grpo_doctor_probes.flight import inject, injection
from grpo_doctor_probes.flight.borrow import Borrowed, TargetProcess
from grpo_doctor_probes.flight.injection import find_bare_return
from grpo_doctor_probes.flight.machine import SCRATCH_BYTES, Call
from grpo_doctor_probes.memory.access import Mapping, mapped
from grpo_doctor_probes.procstat import read_stat
from tests.unit.probes.flight.fake_torch import FR, FR_OF_BACKEND, build, process
from tests.unit.probes.flight.sleeper import MACHINE, Target, until
from tests.unit.probes.memory.small_library import library_at

LOOK = ProcessLook(0, 0, "S")


def callers(target: Target, lender: TargetProcess) -> list[int]:
    """The return addresses of a call into the helper, as far as it can be unwound."""
    with Borrowed(lender, target.helper) as thread:
        at, count = thread.scratch, SCRATCH_BYTES // 8
        walk = Call(target.function("backtrace"), (at, count), scratch=bytes(SCRATCH_BYTES))
        assert thread.call(walk, time.monotonic() + 60) == "returned"
        addresses = struct.unpack(f"<{count}Q", lender.memory.read(at, SCRATCH_BYTES))
    return [address for address in addresses if address]


def test_it_does_not_get_to_what_the_thread_was_in(target: Target) -> None:
    with target.lender() as lender:
        assert lender.by
        ends = callers(target, lender)
        goes_on = callers(target, replace(lender, by=0))
    assert lender.by not in ends[:-1]
    assert lender.return_to not in ends
    assert len(ends) < len(goes_on)
    assert target.ask("hello") == "awake hello"


def test_where_no_library_has_such_a_return_there_is_none(target: Target) -> None:
    code = [m for m in mapped(target.pid) if m.name == MACHINE.return_library]  # has no `_fini`
    no_library = [m for m in mapped(target.pid) if not m.path and "r" in m.rights][:1]
    unreadable = [Mapping(0, 4096, "r-xp", 0, 1, "/gone.so")]
    with target.lender() as lender:
        as_if_files = [replace(m, path="/data", offset=0) for m in no_library]
        maps = [*as_if_files, *unreadable, *(code if MACHINE.name == "x86_64" else ())]
        assert find_bare_return(MACHINE, maps, lender.memory) == 0


def test_it_is_a_return_and_nothing_else(target: Target) -> None:
    with target.lender() as lender:
        code = lender.memory.read(lender.by, len(MACHINE.bare_return))
    assert code == MACHINE.bare_return


def member(pid: int, started_ticks: int = 0, torch: str = "") -> Member:
    return Member(pid, 1, started_ticks, "rank", "python", "train.py", rank=5, torch=torch)


def dump_of(pid: int) -> FlightDump:
    return inject(member(pid), LOOK, at_most_s=30.0)


def goes_on(started: subprocess.Popen[str]) -> bool:
    return started.communicate("still here\n", timeout=60)[0] == "still here\n"


def test_torch_2_8_to_2_14(tmp_path: Path) -> None:
    library = build(tmp_path, "libtorch_cpu.so", FR, "plain")
    with process(library) as started:
        dump = dump_of(started.pid)
        assert json.loads(dump.data) == {"entries": [], "all": 1, "active": 0}
        assert (dump.source, dump.backend, dump.rank) == ("ptrace", "fr", 5)
        assert (dump.pid, dump.problem) == (started.pid, "")
        assert dump.pause_ms > 0
        assert dump.at_unix_ns > 0
        assert goes_on(started)


def test_torch_2_15_is_given_an_empty_string_of_the_library_it_uses(tmp_path: Path) -> None:
    library = build(tmp_path, "libtorch_cpu.so", FR_OF_BACKEND, "backend")
    with process(library) as started:
        document = json.loads(dump_of(started.pid).data)
        assert document == {"entries": [], "all": 1, "active": 0, "size": 4, "whole": 1}
        assert goes_on(started)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("huge", "over 64 MB is refused"),
        ("wild", "its answer can't be read"),
        ("faulty", "the call faulted"),
        ("throwing", "the call faulted"),
        ("cut", "a thread's name is no UTF-8"),
        ("none", "2.8 and newer"),
    ],
)
def test_what_goes_wrong_in_the_call_is_told_and_harms_nothing(
    tmp_path: Path, body: str, reason: str
) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, body)) as started:
        dump = dump_of(started.pid)
        assert reason in dump.problem
        assert dump.data == b""
        assert goes_on(started)


def test_a_recorder_that_does_not_answer_in_time(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "slow")) as started:
        dump = inject(member(started.pid), LOOK, at_most_s=0.1)
        assert "did not answer in time" in dump.problem
        assert dump.pause_ms < 2000
        assert goes_on(started)


def test_a_recorder_that_another_thread_has_locked(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "locked")) as started:
        dump = inject(member(started.pid), LOOK, at_most_s=0.2)
        assert dump.problem == ("the recorder is locked by another thread; the call was taken back")
        assert goes_on(started)


def test_a_process_that_ends_in_the_call(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "dying")) as started:
        dump = dump_of(started.pid)
        assert dump.problem == "the process ended meanwhile"
        assert started.wait(60) == -signal.SIGKILL


def test_a_library_that_was_replaced_meanwhile_is_asked_as_it_was(tmp_path: Path) -> None:
    library = build(tmp_path, "libtorch_cpu.so", FR, "plain")
    with process(library) as started:
        library.unlink()
        library.write_bytes(b"another torch")
        assert dump_of(started.pid).problem == ""


def test_a_process_without_torch(target: Target) -> None:
    assert dump_of(target.pid).problem == "it has not loaded torch"


MAPS_A_FILE = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (183 if MACHINE.name == "x86_64" else 62, f"and this is {MACHINE.name}"),
        (243, f"it is built for ELF machine 243, and this is {MACHINE.name}"),
        (None, "its libraries can't be read: is not a 64-bit little-endian ELF library"),
    ],
)
def test_a_torch_that_is_not_of_this_machine(
    tmp_path: Path, machine: int | None, reason: str
) -> None:
    header = bytearray(library_at(0, own=0))
    header[18:20] = (machine or 0).to_bytes(2, "little")
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(b"no library" if machine is None else header)
    with subprocess.Popen(
        [sys.executable, "-c", MAPS_A_FILE, str(library)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        assert started.stdout
        assert started.stdout.readline() == "ready\n"
        ticks = read_stat(f"/proc/{started.pid}").started_ticks
        dump = inject(member(started.pid, ticks), LOOK)
        started.kill()
    assert reason in dump.problem
    assert (dump.data, dump.rank, dump.pid) == (b"", 5, started.pid)


def dump(backend: str, data: bytes = b"") -> FlightDump:
    return FlightDump("ptrace", backend=backend, data=data)


ENTRIES = b'{"entries": [1]}'


@pytest.mark.parametrize(
    ("fr", "nccl", "chosen"),
    [
        (b"", b"", "nccl"),  # why it says nothing is what matters
        (b"{}", b"", "fr"),
        (b"", b"{}", "nccl"),
        (b"{}", b"{}", "nccl"),
        (ENTRIES, b"{}", "fr"),
        (b"{}", ENTRIES, "nccl"),
        (ENTRIES, ENTRIES, "nccl"),
    ],
)
def test_of_two_recorders_the_one_that_says_more_is_chosen(
    monkeypatch: pytest.MonkeyPatch, fr: bytes, nccl: bytes, chosen: str
) -> None:
    def dumps(*_: object, **__: object) -> tuple[FlightDump, ...]:
        return dump("fr", fr), dump("nccl", nccl)

    monkeypatch.setattr(injection, "inject_all", dumps)
    assert inject(member(1), LOOK).backend == chosen


def test_a_process_that_is_gone_dead_or_another_one(target: Target) -> None:
    refusal = inject(member(target.pid, started_ticks=1), LOOK)
    assert "another one has its number" in refusal.problem
    target.process.kill()
    until(lambda: Path(f"/proc/{target.pid}/stat").read_text().rpartition(")")[2][1] == "Z")
    assert "is dead" in dump_of(target.pid).problem
    target.process.wait()
    assert dump_of(target.pid).problem == "the process ended"


def test_a_process_that_dies_meanwhile_is_a_reason_not_an_error(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "plain")) as started:
        threading.Timer(0.1, started.kill).start()
        deadline = time.monotonic() + 60
        while not (dump := dump_of(started.pid)).problem:
            assert time.monotonic() < deadline
        assert any(word in dump.problem for word in ("ended", "dead", "not loaded")), dump.problem


HOLD = """
import sys, time
from pathlib import Path
from grpo_doctor_probes.flight.ptrace import Tracee
held = [Tracee(int(task.name)) for task in Path(f"/proc/{sys.argv[1]}/task").iterdir()]
print("held", flush=True)
time.sleep(60)
"""


def test_another_tracer_is_waited_for_then_named(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "plain")) as started:
        tracer = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(started.pid)], stdout=subprocess.PIPE
        )
        assert tracer.stdout
        assert tracer.stdout.readline() == b"held\n"
        dump = inject(member(started.pid), LOOK, at_most_s=0.3)
        assert f"process {tracer.pid} (python" in dump.problem
        assert "try again" in dump.problem
        tracer.kill()
        tracer.communicate()
        assert dump_of(started.pid).problem == ""


def all_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2][1] == "T" for task in tasks)


def test_a_stopped_process_is_asked_and_stays_stopped(tmp_path: Path) -> None:
    with process(build(tmp_path, "libtorch_cpu.so", FR, "plain")) as started:
        os.kill(started.pid, signal.SIGSTOP)
        until(lambda: all_stopped(started.pid))
        assert dump_of(started.pid).problem == ""
        until(lambda: all_stopped(started.pid))
        os.kill(started.pid, signal.SIGCONT)
        assert goes_on(started)


STRANGER = """
import os, sys
sys.path[:0] = {path!r}
from grpo_doctor_probes.evidence import Member, ProcessLook
from grpo_doctor_probes.flight import inject, injection
os.setgid(65534); os.setuid(65534)
member = Member({pid}, 1, 0, "rank", "python", "x")
print(inject(member, ProcessLook(0, 0, "S")).problem)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_users_process_is_refused_with_what_to_do(target: Target) -> None:
    script = STRANGER.format(path=sys.path, pid=target.pid)
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert "it belongs to user 0. Run it as root: `sudo " in output or "yama" in output
