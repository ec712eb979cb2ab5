"""The tables of lines of Python's code, and processes that have another Python."""

from __future__ import annotations

import dis
import os
import sys

import pytest

from grpo_doctor_probes.memory.access import Memory
from grpo_doctor_probes.memory.python import (
    Objects,
    UnknownPythonError,
    line_of_310,
    line_of_311,
)

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
