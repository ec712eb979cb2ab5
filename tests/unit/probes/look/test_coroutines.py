"""What coroutines of real processes wait for, in each Python version that this machine has."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_probes.look import awaits, coroutines
from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.elf import ElfError
from grpo_doctor_probes.memory.python import LAYOUTS, NoObjectError, UnknownPythonError
from tests.recording import interpreter
from tests.unit.probes.look.stage import READY, Stage

PROGRAM = Path(__file__).with_name("coroutines_program.py")
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = [".".join(map(str, version)) for version in LAYOUTS]
WAITS = {
    "answer_of_judge": ("connection", "answer_of_judge"),
    "own_semaphore": ("asyncio.Semaphore", "own_semaphore"),
    "gathered": ("asyncio.Event", "one"),
    "all_waited_for": ("asyncio.Event", "one"),
    "shielded": ("asyncio.Event", "one"),
    "grouped": ("asyncio.Event", "one"),
    "empty_queue": ("asyncio.Queue", "empty_queue"),
    "generated": ("asyncio.Event", "numbers"),
    "in_a_thread": ("thread", "in_a_thread"),
    "bare_future": ("future", "bare_future"),
}


@pytest.fixture
def judge() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def started(stage: Stage, judge: socket.socket, mode: str, python: str, loop: str) -> int:
    return stage.run(python, str(PROGRAM), mode, str(judge.getsockname()[1]), loop)


def line_of(text: str) -> int:
    """Return the line of the program on which this is."""
    lines = PROGRAM.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_shows_the_line_and_what_it_awaits(
    stage: Stage, judge: socket.socket, version: str
) -> None:
    python = sys.executable if version == OWN else interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    for mode, (what, function) in WAITS.items():
        if mode == "grouped" and version == "3.10":
            continue
        pid = started(stage, judge, mode, python, "thread")
        ((row,), ends) = awaits([(pid, 4)])
        users = [frame for frame in row.frames if frame.file == str(PROGRAM)]
        assert (row.pid, row.tid, row.what, row.count) == (pid, 4, what, 1), mode
        assert users[0].function.rpartition(".")[2] == function, mode
        assert users[-1] == users[-1].__class__("scored", str(PROGRAM), line_of("[MODE]()")), mode
        assert [(end.kind, end.fd) for end in ends] == (
            [("socket-receive", row.fd)] if what == "connection" else []
        ), mode
        stage.end()


def test_coroutines_at_one_place_are_counted_and_others_of_the_loop_are_not_shown(
    stage: Stage, judge: socket.socket
) -> None:
    pid = started(stage, judge, "alike", sys.executable, "main")
    ((row,), _) = awaits([(pid, pid)])
    assert (row.what, row.count) == ("asyncio.Event", 5)
    assert row.frames[-2].line == line_of("for _ in range(5)")


def test_the_connection_has_the_process_at_its_other_end(
    stage: Stage, judge: socket.socket
) -> None:
    pid = started(stage, judge, "answer_of_judge", sys.executable, "main")
    connection, _ = judge.accept()
    (_, (end,)) = awaits([(pid, 7)])
    local, _, remote = end.target.partition(" -> ")
    assert (end.pid, end.tid, end.peers) == (pid, 7, (os.getpid(),))
    assert local.endswith(f":{connection.getpeername()[1]}")
    assert remote.endswith(f":{judge.getsockname()[1]}")
    connection.close()


def test_a_process_without_coroutines_or_without_python_has_none(stage: Stage) -> None:
    plain = stage.start(READY + "time.sleep(60)")
    sleep = stage.run("sh", "-c", "echo ready; exec sleep 60")
    assert awaits([(plain, plain), (sleep, sleep), (2**22 + 1, 1)]) == ((), ())


class _Torn(Memory):
    """Memory in which some words have changed, as when the interpreter runs meanwhile."""

    random = random.Random(7)

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(super().read(address, size))
        if size >= 8 and self.random.random() < 0.002:
            at = 8 * self.random.randrange(size // 8)
            changed = self.random.choice([0, 1, 2**63, address, self.random.getrandbits(47) & ~7])
            struct.pack_into("<Q", data, at, changed)
        return bytes(data)


@pytest.mark.slow
def test_memory_that_changes_meanwhile_raises_nothing_else(
    stage: Stage, judge: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = started(stage, judge, "gathered", sys.executable, "thread")
    monkeypatch.setattr(coroutines, "Memory", _Torn)
    read = 0
    for _ in range(300):
        with contextlib.suppress(ElfError, NoObjectError, OSError, UnknownPythonError):
            read += bool(coroutines._read(pid, pid, Path("/proc")))
    assert read
