"""Nothing in the product can write to another process: no such request is made anywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = [ROOT / "grpo_doctor", ROOT / "probes", ROOT / "reports", ROOT / "trainer"]
POSITIONS = import_module("grpo_doctor_probes.look.positions")
PTRACE = Path(str(POSITIONS.__file__))
MEMORY = PTRACE.parents[1] / "memory" / "access.py"
SEIZE, INTERRUPT, DETACH, GETREGSET = 0x4206, 0x4207, 17, 0x4204
WRITES = re.compile(
    r"SETREG|SETFPREG|SETSIGMASK|POKE(TEXT|DATA|USER)|process_vm_writev", re.IGNORECASE
)


def modules() -> Iterator[Path]:
    for folder in PRODUCT:
        yield from folder.rglob("*.py")


def calls_of(path: Path, name: str) -> list[ast.Call]:
    """Calls of a function or method with that name."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return [
        call
        for call in calls
        if getattr(call.func, "attr", None) == name or getattr(call.func, "id", None) == name
    ]


def test_ptrace_is_asked_to_stop_to_read_registers_and_to_let_go() -> None:
    assert [path for path in modules() if calls_of(path, "ptrace")] == [PTRACE]
    (call,) = calls_of(PTRACE, "ptrace")
    assert ast.unparse(call.args[0]) == "request"
    requests = {ast.unparse(call.args[0]) for call in calls_of(PTRACE, "_request")}
    assert {getattr(POSITIONS, name) for name in requests} == {SEIZE, INTERRUPT, DETACH, GETREGSET}


def test_memory_of_processes_is_opened_to_be_read() -> None:
    (opened,) = calls_of(MEMORY, "open")
    assert ast.unparse(opened.args[1]) == "os.O_RDONLY | os.O_CLOEXEC"
    others = [
        path for path in modules() if re.search(r"""/mem["']|["']mem["']""", path.read_text())
    ]
    assert others == [MEMORY]


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: path.name)
def test_no_request_that_writes_is_named(path: Path) -> None:
    assert [file for file in path.rglob("*.py") if WRITES.search(file.read_text())] == []
