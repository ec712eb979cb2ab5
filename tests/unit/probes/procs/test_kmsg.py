"""Records of the kernel's log, one a read, as its device gives them."""

from __future__ import annotations

import os
from collections.abc import Callable

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


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Makes the next reads have these outcomes; returns what is closed."""

    def has(*outcomes: bytes | OSError) -> list[int]:
        remaining = list(outcomes)
        closed: list[int] = []

        def read(_: int, __: int) -> bytes:
            outcome = remaining.pop(0)
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

        monkeypatch.setattr(os, "open", lambda *_: 77)
        monkeypatch.setattr(os, "read", read)
        monkeypatch.setattr(os, "close", closed.append)
        return closed

    return has


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([b"a", b"b", BlockingIOError(), b"c"], [b"a", b"b"]),
        ([b"a", BrokenPipeError(), b"c", BlockingIOError()], [b"a", b"c"]),  # one was overwritten
        ([b"a", b"", b"c"], [b"a"]),
        ([BlockingIOError()], []),
    ],
)
def test_all_records_up_to_the_newest(
    device: Callable[..., list[int]], outcomes: list[bytes | OSError], expected: list[bytes]
) -> None:
    closed = device(*outcomes)
    assert list(records()) == expected
    assert closed == [77]


def test_messages_that_come_for_ever_have_an_end(
    device: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmsg, "_MOST_RECORDS", 3)
    device(*[b"a"] * 9)
    assert list(records()) == [b"a"] * 3
