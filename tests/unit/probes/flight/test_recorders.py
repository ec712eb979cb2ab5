"""Which processes have a recorder to read, and what is said of those that have none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight import read_recorders, recorders
from grpo_doctor_probes.procs.procstat import read_stat
from tests.unit.probes.conftest import running

FR, _, NCCL = (function for _, _, function in recorders.ANCHORS)
# What compilers make of a recorder that is static in a function, and nothing else of it.
SOURCE = """
struct Recorder { bool on; long rest[60]; };
extern "C" __attribute__((visibility("default"))) Recorder *NAME() {
    static Recorder *instance = new Recorder{ON};
    return instance;
}
"""
NONE = "int other(void) { return 0; }"
PROCESS = """
import ctypes, sys
for path in sys.argv[2:]:
    library = ctypes.CDLL(path)
    for name in sys.argv[1].split(","):
        if hasattr(library, name): getattr(library, name)()
print("ready", flush=True)
sys.stdin.readline()
"""


def library(folder: Path, name: str, function: str = "", on: str = "true") -> Path:
    """A library of that name; `function` leads to a recorder."""
    if shutil.which("g++") is None or os.uname().machine != "x86_64":
        pytest.skip("needs g++ for x86-64 to build a library that stands in for torch's")
    source, built = folder / "recorder.cpp", folder / name
    source.write_text(SOURCE.replace("NAME", function).replace("ON", on) if function else NONE)
    flags = ["-shared", "-fPIC", "-O2", "-Wl,--hash-style=gnu"]
    subprocess.run(["g++", *flags, "-o", built, source], check=True)
    return built


@contextmanager
def process(*libraries: Path, called: str = "") -> Iterator[int]:
    """A process that has them loaded and has called these functions."""
    with running(sys.executable, "-c", PROCESS, called, *map(str, libraries)) as started:
        yield started.pid


def member(pid: int, started_ticks: int = 0) -> Member:
    return Member(pid, 1, started_ticks, "rank", "python", "train.py", rank=5)


def problem_of(pid: int) -> str:
    (dump,) = read_recorders(member(pid), at_most_s=60)
    assert (dump.source, dump.rank, dump.pid, dump.data) == ("memory", 5, pid, b"")
    assert dump.at_unix_ns > 0
    return dump.problem


@pytest.mark.parametrize(
    ("function", "called", "on", "words"),
    [
        ("", "", "true", "start with TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),  # a torch that is too old
        (FR, "", "true", "no process group was made yet"),
        (FR, FR, "false", "TORCH_FR_BUFFER_SIZE=2000"),
        (FR, FR, "true", "laid out otherwise than in torch 2.8 to 2.15"),
    ],
    ids=["too old", "never made", "off", "unknown"],
)
def test_a_recorder_that_cannot_be_read_says_why(
    tmp_path: Path, function: str, called: str, on: str, words: str
) -> None:
    with process(library(tmp_path, "libtorch_cpu.so", function, on), called=called) as pid:
        assert words in problem_of(pid)


def test_nccls_recorder_that_is_unknown_names_the_pipe(tmp_path: Path) -> None:
    cpu = library(tmp_path, "libtorch_cpu.so", FR)
    gpu = library(tmp_path, "libtorch_cuda.so", NCCL)
    with process(cpu, gpu, called=NCCL) as pid:
        (dump,) = read_recorders(member(pid), at_most_s=60)
    assert dump.backend == "nccl"
    assert "PIPE_FILE=PREFIX; then `echo 1 > PREFIX<rank>.pipe`" in dump.problem


def test_a_process_that_has_ended_is_told_from_one_that_has_its_number(tmp_path: Path) -> None:
    with process() as pid:
        ticks = read_stat(Path(f"/proc/{pid}")).started_ticks
        assert read_recorders(member(pid, ticks))[0].problem == "it has not loaded torch"
        assert "another one has its number" in read_recorders(member(pid, ticks + 1))[0].problem
        os.kill(pid, 9)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert "its parent has not collected it yet" in problem_of(pid)
    assert problem_of(pid) == "the process ended"


def test_a_memory_that_gives_no_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()

    def hang(_: Member) -> tuple[FlightDump, ...]:
        never.wait()
        return ()

    monkeypatch.setattr(recorders, "_read", hang)
    (dump,) = read_recorders(member(os.getpid()), at_most_s=0.1)
    never.set()
    assert dump.problem == "its memory gave no answer in time"


def test_who_may_not_be_read_says_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise PermissionError(1, "no")

    monkeypatch.setattr(recorders, "Memory", refuse)
    monkeypatch.setattr(recorders, "why_refused", lambda _: "run it as root")
    assert problem_of(os.getpid()) == "run it as root"
