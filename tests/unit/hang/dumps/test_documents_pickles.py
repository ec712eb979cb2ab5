"""Pickles are read as data, or refused by name; nothing in them ever runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.hang.dumps import documents
from tests.dumps.cases import BY_NAME
from tests.dumps.formats import document

HEAD = b"\x80\x02"


def a_dump() -> Any:
    return document(BY_NAME["missing rank"].build(), 0)


class Reduces:
    """What every malicious pickle does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_is_not_read_instruction_by_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full ring has hundreds of thousands of them, and a job a thousand rings."""
    reads: list[int] = []

    class Counted(io.BytesIO):
        def readinto(self, buffer: Any, /) -> int:
            reads.append(len(buffer))
            return super().readinto(buffer)

        def read(self, size: int | None = -1, /) -> bytes:
            reads.append(size or 0)
            return super().read(size)

    monkeypatch.setattr(io, "BytesIO", Counted)
    data = pickle.dumps(a_dump(), 2)
    assert documents.unpickled(data) == a_dump()
    assert len(reads) <= 3 + len(data) // io.DEFAULT_BUFFER_SIZE


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_dumps_of_any_binary_protocol_are_read_as_the_standard_library_reads_them(
    protocol: int,
) -> None:
    data = pickle.dumps(a_dump(), protocol)
    assert documents.unpickled(data) == a_dump()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_command_is_not_run(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "ran"
    data = pickle.dumps({"entries": [Reduces(trap)]}, protocol)
    with pytest.raises(documents.UnsafePickleError):
        documents.unpickled(data)
    assert not trap.exists()
    pickle.loads(data)
    assert trap.exists(), "the trap must work, or this test shows nothing"


@pytest.mark.parametrize(
    ("body", "instruction"),
    [
        (b"cos\nsystem\nX\x02\0\0\0id\x85R.", "GLOBAL 'os system'"),
        (b"cbuiltins\neval\n.", "GLOBAL 'builtins eval'"),
        (b"(X\x02\0\0\0idios\nsystem\n.", "INST"),
        (b"}X\x01\0\0\0aK\x01s}b.", "BUILD"),
        (b"X\x01\0\0\0aQ.", "BINPERSID"),
        (b"Pabc\n.", "PERSID"),
        (b"X\x02\0\0\0osX\x06\0\0\0system\x93.", "STACK_GLOBAL"),
        (b"\x82\x01.", "EXT1"),
        (b"}}\x81.", "NEWOBJ"),
        (b"\x96" + struct.pack("<Q", 1 << 40) + b".", "BYTEARRAY8"),
        (b"\x8d" + struct.pack("<Q", 1 << 40) + b".", "BINUNICODE8"),
        (b"]r\xff\xff\xff\xff.", "LONG_BINPUT"),
        (b"]p4294967295\n.", "PUT"),
        (b"\x8b\xff\xff\xff\x7f.", "LONG4"),
        (b"I" + b"9" * 5000 + b"\n.", "INT"),
    ],
)
def test_an_instruction_that_no_recorder_writes_is_refused_by_name(
    body: bytes, instruction: str
) -> None:
    with pytest.raises(documents.UnsafePickleError, match=instruction.split(maxsplit=1)[0]):
        documents.unpickled(HEAD + body)


def test_classes_are_refused_a_second_time_behind_the_check() -> None:
    reader = documents._DataOnly(__import__("io").BytesIO(HEAD + b"cos\nsystem\n."))
    with pytest.raises(documents.UnsafePickleError, match=r"os\.system"):
        reader.load()


def test_instructions_inside_texts_are_just_text() -> None:
    text = "cos\nsystem\n(R.r\xff" * 100
    assert documents.unpickled(pickle.dumps({"entries": [text]}, 2)) == {"entries": [text]}


def test_every_cut_is_an_early_end() -> None:
    data = pickle.dumps(a_dump(), 2)
    for end in range(2, len(data) - 1, 97):
        with pytest.raises(EOFError):
            documents.unpickled(data[:end])


def test_damage_is_an_error_or_data_and_never_anything_else() -> None:
    data = bytearray(pickle.dumps(a_dump(), 2))
    for at in range(2, 3000, 7):
        broken = bytes(data[:at]) + bytes([data[at] ^ 0x55]) + bytes(data[at + 1 :])
        try:
            documents.unpickled(broken)
        except (EOFError, ValueError):
            continue


def test_a_slot_number_may_not_exceed_the_file() -> None:
    """The standard unpickler would allocate 68 GB for this one."""
    with pytest.raises(documents.UnsafePickleError):
        documents.unpickled(HEAD + b"]r\x00\x00\x00\x10e.")
