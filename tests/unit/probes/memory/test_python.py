"""The tables of lines of Python's code, and processes that have another Python."""

from __future__ import annotations

import dis
import os
import sys
import types
from collections.abc import Iterator

import pytest

from grpo_doctor_probes.memory.access import Memory, mapped
from grpo_doctor_probes.memory.python import Objects, UnknownPythonError, line_of_310, line_of_311

CODE = """
async def long(a, b):
    total = (
        a
        + b
    )
GAP
    async with a as one, b as two:
        await one(
            two,
            total,
        )
    return await b
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="another table")
@pytest.mark.parametrize("gap", [0, 40, 300])
def test_each_instruction_has_its_line(gap: int) -> None:
    names: dict[str, object] = {}
    exec(CODE.replace("GAP", "\n" * gap), names)
    code = names["long"].__code__  # type: ignore[attr-defined]
    lines = {
        instruction.offset: instruction.positions.lineno
        for instruction in dis.get_instructions(code)
        if instruction.positions is not None and instruction.positions.lineno is not None
    }
    found = {at: line_of_311(code.co_linetable, code.co_firstlineno, at) for at in lines}
    assert found == lines
    assert len(set(lines.values())) > 5


def test_lines_of_python_310() -> None:
    # 4 bytes at the first line, 6 at 3 lines below, 2 without a line, 8 at a line above
    table = bytes([4, 0, 6, 3, 2, 0x80, 8, 0xFE])
    assert [line_of_310(table, 10, at) for at in (0, 2, 4, 8, 10, 12, 18)] == [
        *(10, 10, 13, 13),
        *(13, 11, 11),
    ]


def test_a_process_without_a_python_says_so() -> None:
    with Memory(os.getpid()) as memory, pytest.raises(UnknownPythonError, match="it has no Python"):
        Objects(memory, ())


class Base:
    pass


class Held(Base):
    def __init__(self) -> None:
        self.number, self.name = 5, "held"


@types.coroutine
def pauses() -> Iterator[None]:
    yield


async def below() -> None:
    await pauses()


async def waits(number: int) -> None:
    def inner() -> int:
        return number

    await below()
    inner()


HELD, WIDE, TABLE = Held(), "Gr\u00fc\u00dfe \u4e16 \U0001f600", {"one": "1", "two": "2"}
LIST, TUPLE, SET = ["a", "b"], ("c",), {"d", "e"}
SUSPENDED = waits(7)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="an unknown Python")
def test_objects_of_this_process() -> None:
    with Memory(os.getpid()) as memory:
        objects = Objects(memory, mapped(os.getpid()))
        names = objects.module(__name__)
        assert (objects.text(names["CODE"]), objects.text(names["WIDE"])) == (CODE, WIDE)
        table = {key: objects.text(value) for key, value in objects.items(names["TABLE"]).items()}
        attributes = objects.attributes(names["HELD"])
        assert (table, [*attributes]) == (TABLE, ["number", "name"])
        assert objects.text(attributes["name"]) == "held"
        for name, held in (("LIST", LIST), ("TUPLE", TUPLE)):
            assert [objects.text(each) for each in objects.contained(names[name])] == [*held]
        assert {objects.text(each) for each in objects.members(names["SET"])} == SET
        assert objects.is_a(names["HELD"], f"{Base.__name__}")
        assert not objects.is_a(names["HELD"], "str")
        assert objects.module("absent.for.sure") == {}
        assert objects.suspended(names["SUSPENDED"]) is None
        SUSPENDED.send(None)
        objects = Objects(memory, mapped(os.getpid()))
        where = objects.suspended(names["SUSPENDED"])
        assert where is not None
        assert (where.function.rpartition(".")[2], where.file) == ("waits", __file__)
        assert where.line == waits.__code__.co_firstlineno + 4
        assert objects.number(objects.local(where, 0) + 24, "<I") == 7
        inner = objects.suspended(where.awaits)
        assert inner is not None
        assert inner.function.rpartition(".")[2] == "below"
    SUSPENDED.close()
