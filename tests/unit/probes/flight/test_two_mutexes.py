"""A job with NCCL's recorder and a device with a lock: whatever is asked of it, it goes on."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import FlightDump
from grpo_doctor_probes.flight import inject, inject_all, recorderlock, recorders
from grpo_doctor_probes.flight.borrow import Borrowed
from grpo_doctor_probes.flight.machine import Call
from grpo_doctor_probes.memory import elf
from grpo_doctor_probes.memory.access import Memory, mapped
from tests.unit.probes.flight.fake_nccl import Job, asleep_in_read, job, library
from tests.unit.probes.flight.fake_torch import FR, NCCL, build, process
from tests.unit.probes.flight.sleeper import MACHINE, lender_of, until
from tests.unit.probes.flight.test_injection import LOOK, member

pytestmark = pytest.mark.skipif(
    MACHINE.name != "x86_64", reason="whether a mutex is held is read on x86-64 only"
)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("torch")
    return build(folder, "libtorch_cpu.so", FR, "plain"), library(folder)


def nccl_dump(started: Job, at_most_s: float = 20.0) -> FlightDump:
    """What NCCL's recorder of the job says, the other one's answer left out."""
    dumps = inject_all(member(started.pid), LOOK, at_most_s=at_most_s)
    return next(dump for dump in dumps if dump.backend == "nccl")


def test_groups_and_counters_are_had_while_the_device_is_waited_for(
    libraries: tuple[Path, Path],
) -> None:
    with job(*libraries) as started:
        assert started.say(b"s") == "synchronizing"
        until(lambda: asleep_in_read(started))
        dump = nccl_dump(started)
        document = json.loads(dump.data)
        assert document == {"pg_config": {}, "pg_status": {"0": 1}, "all": 0, "active": 0}
        assert dump.problem == ""
        assert started.say(b"\n") == "done 0"  # and the device was asked nothing
        assert started.say(b"r") == "done 0"


def test_of_two_recorders_the_one_with_entries_is_chosen(libraries: tuple[Path, Path]) -> None:
    with job(*libraries) as started:
        dump = inject(member(started.pid), LOOK, at_most_s=20.0)
        assert (dump.backend, json.loads(dump.data)["all"]) == ("fr", 1)


def test_a_recorder_that_is_locked_is_not_asked(libraries: tuple[Path, Path]) -> None:
    with job(*libraries) as started:
        assert started.say(b"h") == "holding"
        until(lambda: asleep_in_read(started))
        dump = nccl_dump(started)
        assert f"locked by its thread {started.pid} (python" in dump.problem
        assert (dump.data, dump.pause_ms) == (b"", 0.0)
        assert started.say(b"\n") == "done 0"
        assert started.say(b"r") == "done 0"


def test_one_that_was_never_used_is_not_made(tmp_path: Path, libraries: tuple[Path, Path]) -> None:
    with process(*libraries) as started:
        dump = next(d for d in inject_all(member(started.pid), LOOK) if d.backend == "nccl")
        assert dump.problem == "it has made no NCCL group"


def test_one_whose_mutex_is_not_found_is_not_asked(tmp_path: Path) -> None:
    cpu = build(tmp_path, "libtorch_cpu.so", FR, "plain")
    gpu = build(tmp_path, "libtorch_cuda.so", NCCL, "plain")
    with process(cpu, gpu) as started:
        dump = next(d for d in inject_all(member(started.pid), LOOK) if d.backend == "nccl")
        assert "can't be told" in dump.problem
        assert dump.data == b""


def function_of(started: Job, name: str) -> int:
    with Memory(started.pid) as memory:
        loaded = recorders.loaded(mapped(started.pid), "libtorch_cuda.so")
        assert loaded
        address = elf.library(memory.read, loaded.start).address_of(name)
        assert address
        return address


def late_call_with_entries(started: Job, helper: int) -> bool:
    """Asks for entries, as was done once, for no time at all. Whether the thread is left alone."""
    with lender_of(started.pid) as lender:
        borrowed = Borrowed(lender, helper, take_back=False)
        with borrowed as thread:
            at = thread.scratch
            call = Call(function_of(started, NCCL), (1, 0), result=at, scratch=bytes(32))
            ending = thread.call(call, deadline=0.0)
    return ending == "late" and borrowed.left_alone


def test_a_call_of_nccls_that_takes_too_long_ends_by_itself(libraries: tuple[Path, Path]) -> None:
    """It has the recorder's mutex and waits for CUDA: taken back, the mutex would stay locked."""
    with job(*libraries) as started:
        tasks = Path(f"/proc/{started.pid}/task").iterdir()
        helper = max(int(task.name) for task in tasks)
        assert started.say(b"s") == "synchronizing"
        until(lambda: asleep_in_read(started))
        with ThreadPoolExecutor(1) as tracer:  # when it ends, the kernel lets go of the thread
            assert tracer.submit(late_call_with_entries, started, helper).result(60)
        assert started.say(b"\n") in ("done 0", "done 1")  # the call needs a core to come back
        until(lambda: started.say(b"r") == "done 1")


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [(0, b"\0", "TORCH_FR_BUFFER_SIZE"), (0, b"\7", "can't be told"), (24, b"\1", "can't be told")],
    ids=["off", "flag", "kind of mutex"],
)
def test_what_does_not_look_like_a_recorder_is_left_alone(
    libraries: tuple[Path, Path], at: int, value: bytes, reason: str
) -> None:
    with job(*libraries) as started, lender_of(started.pid) as lender:
        function = function_of(started, NCCL)
        recorder = recorderlock.recorder_at(lender.memory, MACHINE.name, function)
        assert recorder
        assert struct.unpack("<B", lender.memory.read(recorder, 1)) == (1,)
        lender.memory.write(recorder + at, value)
        assert reason in nccl_dump(started).problem
