"""Records of the kernel's log, one a read, as its device gives them."""

from __future__ import annotations

import os

import pytest

from grpo_doctor_probes.procs import kmsg
from grpo_doctor_probes.procs.kmsg import parse_record, records


@pytest.mark.parametrize(
    ("record", "parsed"),
    [
        (b"6,339,5140900,-;NET: Registered\n SUBSYSTEM=net\n", (5.1409, b"NET: Registered")),
        (b"6,339,0,-;a;b\n", (0.0, b"a;b")),
        (b"6,339,1000000;text", (1.0, b"text")),  # of an older kernel
        (b"6,339;text", None),
        (b"6,339,x,-;text", None),
        (b"6,339,-5,-;text", None),
        (b"6,339,5140900,-", None),
        (b"", None),
    ],
)
def test_time_and_text_of_a_record(record: bytes, parsed: tuple[float, bytes] | None) -> None:
    assert parse_record(record) == parsed


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([b"a", b"b", BlockingIOError(), b"c"], [b"a", b"b"]),
        ([b"a", BrokenPipeError(), b"c", BlockingIOError()], [b"a", b"c"]),  # one was overwritten
        ([b"a", b"", b"c"], [b"a"]),
        ([BlockingIOError()], []),
        ([b"a"] * 9, [b"a"] * 3),  # that come for ever
    ],
)
def test_all_records_up_to_the_newest(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[bytes | OSError], expected: list[bytes]
) -> None:
    closed: list[int] = []

    def read(_: int, __: int) -> bytes:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    monkeypatch.setattr(os, "open", lambda *_: 77)
    monkeypatch.setattr(os, "read", read)
    monkeypatch.setattr(os, "close", closed.append)
    monkeypatch.setattr(kmsg, "_MOST_RECORDS", 3)
    assert list(records()) == expected
    assert closed == [77]
