"""The mutex of a recorder as it lies in memory, and what is said where it must not be asked."""

from __future__ import annotations

import os
import struct
import threading
import time
from typing import Any

import pytest

from grpo_doctor_probes.flight.recorderlock import (
    RecorderLock,
    UnknownRecorderError,
    look,
    recorder_at,
    why_not,
)
from tests.unit.probes.memory.test_cplusplus import GUARD, HERE, getter

RECORDER = 0x50000
WHOLE: dict[str, int] = {
    "on": 1, "stacks": 0, "lock": 0, "owner": 0, "kind": 0,
    "begin": 8000, "end": 8512, "room": 9000, "most": 2000, "next": 1,
}  # fmt: skip


def head(machine: str = "x86_64", **change: int) -> bytes:
    """The first bytes of a recorder."""
    facts = {**WHOLE, **change}
    mutex = struct.pack("<iIiIi", facts["lock"], 0, facts["owner"], 0, facts["kind"])
    flags = struct.pack("<BB6x", facts["on"], facts["stacks"])
    size = {"x86_64": 40, "aarch64": 48}[machine]
    ring = struct.pack("<6Q", *(facts[n] for n in ("begin", "end", "room", "most", "next")), 7)
    return flags + mutex.ljust(size, b"\0") + ring


class Held:
    """Memory with a recorder, the code that finds it, and the pointer that it hangs on."""

    def __init__(
        self, *heads: bytes, guard: int = 1, pointer: int = RECORDER, code: bytes = b""
    ) -> None:
        self.heads = list(heads)
        self.parts = {HERE: code or getter(HERE), GUARD: struct.pack("<BxxxxxxxQ", guard, pointer)}

    def read(self, address: int, size: int) -> bytes:
        if address == RECORDER:  # another state each time, the last one for ever
            return (self.heads.pop(0) if len(self.heads) > 1 else self.heads[0])[:size]
        if address not in self.parts:
            raise OSError("nothing there")
        return self.parts[address].ljust(size, b"\x90")[:size]


def memory(*heads: bytes, **more: Any) -> Any:
    return Held(*heads, **more)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (True, False, 0)),
        ({"on": 0}, (False, False, 0)),
        ({"stacks": 1}, (True, False, 0)),
        ({"lock": 1, "owner": 77}, (True, True, 77)),
        ({"lock": 2, "owner": 77}, (True, True, 77)),
        ({"end": 8000, "room": 8000}, (True, False, 0)),
        ({"begin": 0, "end": 0, "room": 0, "next": 0}, (True, False, 0)),
        ({"next": 2000}, (True, False, 0)),
        ({"most": (1 << 32) - 1}, (True, False, 0)),
    ],
)
def test_the_state_of_a_mutex(
    machine: str, change: dict[str, int], expected: tuple[bool, bool, int]
) -> None:
    state = look(memory(head(machine, **change)), machine, RECORDER)
    assert state == RecorderLock(*expected)


@pytest.mark.parametrize(
    "change",
    [
        {"on": 2}, {"stacks": 2}, {"lock": 3}, {"lock": -1}, {"owner": -1}, {"kind": 1},
        {"begin": 8513}, {"end": 9001}, {"next": 2001}, {"most": 1 << 32},
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_no_recorder(change: dict[str, int]) -> None:
    with pytest.raises(UnknownRecorderError, match="laid out otherwise"):
        look(memory(head("x86_64", **change)), "x86_64", RECORDER)


@pytest.mark.parametrize(
    ("guard", "pointer", "expected"),
    [(1, RECORDER, RECORDER), (0, RECORDER, None), (1, 0, None), (0, 0, None)],
)
def test_a_recorder_is_there_once_it_was_made(
    guard: int, pointer: int, expected: int | None
) -> None:
    assert recorder_at(memory(head(), guard=guard, pointer=pointer), "x86_64", HERE) == expected


@pytest.mark.parametrize(
    ("machine", "code", "words"),
    [("aarch64", b"", "only x86_64"), ("x86_64", b"\xc3", "another form than in torch 2.8")],
)
def test_code_that_is_not_understood(machine: str, code: bytes, words: str) -> None:
    with pytest.raises(UnknownRecorderError, match=words):
        recorder_at(memory(head(), code=code), machine, HERE)
    text = why_not(memory(head(), code=code), os.getpid(), machine, HERE, 0.0)
    assert text.startswith("whether NCCL's recorder is locked can't be told: its code")


def soon() -> float:
    return time.monotonic() + 60.0


HELD = head(lock=1, owner=77)


@pytest.mark.parametrize(
    ("locked", "deadline", "text"),
    [
        (memory(head()), 0.0, ""),
        (memory(head(), guard=0), 0.0, "it has made no NCCL group"),
        (memory(head(on=0)), 0.0, "NCCL's recorder is off: TORCH_FR_BUFFER_SIZE=2000 turns it"),
        (memory(head(on=2)), 0.0, "whether NCCL's recorder is locked can't be told: it is laid"),
        (memory(HELD, head()), 0.0, "NCCL's recorder is locked by another thread, so it is not"),
        (memory(HELD, HELD, HELD, head()), None, ""),  # the microseconds of a record
        (memory(HELD, HELD, head(on=0)), None, "NCCL's recorder is off"),
    ],
)
def test_why_a_recorder_is_not_asked(locked: Any, deadline: float | None, text: str) -> None:
    reason = why_not(locked, os.getpid(), "x86_64", HERE, soon() if deadline is None else deadline)
    assert reason.startswith(text)
    assert bool(reason) is bool(text)


def test_who_has_the_mutex_is_named() -> None:
    own = threading.get_native_id()
    text = why_not(memory(head(lock=1, owner=own)), os.getpid(), "x86_64", HERE, 0.0)
    assert text.startswith(f"NCCL's recorder is locked by its thread {own} (")
    assert why_not(memory(HELD), 2**22 + 1, "x86_64", HERE, 0.0).count("another thread") == 1
