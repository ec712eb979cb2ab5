from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from grpo_doctor_probes.discover.commands import framework_by_script
from grpo_doctor_probes.discover.modules import environ_pointers, live_environment, read_modules
from grpo_doctor_probes.discover.scan import read_process
from tests.unit.probes.discover.fakeproc import process


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import torch\nfrom trl import GRPOTrainer\n", "trl"),
        ("import verl.trainer\nimport trl\n", "verl"),
        ("    from swift.llm import x\n", "ms-swift"),
        ("# import trl\nimport trlx\n", "unknown"),
    ],
)
def test_a_script_tells_the_framework_by_its_imports(
    tmp_path: Path, text: str, framework: str
) -> None:
    (tmp_path / "7" / "cwd").mkdir(parents=True)
    (tmp_path / "7" / "cwd" / "t.py").write_text(text)
    assert framework_by_script(tmp_path, process(command="python -u t.py")) == framework


def test_the_environment_as_the_process_has_it_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set after exec, as a Ray actor does: /proc/PID/environ does not have it."""
    monkeypatch.setenv("RANK", "12345")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    proc, pid = Path("/proc"), os.getpid()
    own, modules = read_process(proc, pid), read_modules(proc, pid)
    assert own is not None
    assert modules is not None
    pointers = environ_pointers(proc, own, modules)
    variables = live_environment(proc, pid, pointers)
    assert variables["RANK"] == "12345"
    assert "WORLD_SIZE" not in variables
    program = [file for file in modules if file.path != own.executable]
    of_libc = environ_pointers(proc, own, program)
    assert of_libc == pointers[-1:]  # some programs have a copy of their own
    assert live_environment(proc, pid, of_libc)["RANK"] == "12345"
    libraries = [file for file in program if "libc.so" not in file.path]
    assert environ_pointers(proc, own, libraries) == ()
    assert environ_pointers(proc / "none", own, modules) == ()


ENVIRON = 0x800
PAGE = 0x1000


class Held:
    """A process's memory as a file of two pages, what is behind them is not there."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder
        self._file = folder / "7" / "mem"
        self._file.parent.mkdir()
        self._file.write_bytes(bytes(2 * PAGE))

    def write(self, address: int, content: bytes) -> None:
        content_now = bytearray(self._file.read_bytes())
        content_now[address : address + len(content)] = content
        self._file.write_bytes(content_now[: 2 * PAGE])

    def array(self, address: int, *pointers: int) -> None:
        self.write(ENVIRON, struct.pack("<Q", address))
        self.write(address, struct.pack(f"<{len(pointers)}Q", *pointers))

    def variables(self) -> dict[str, str]:
        return live_environment(self.proc, 7, [ENVIRON])


@pytest.fixture
def held_memory(tmp_path: Path) -> Held:
    """Two strings, `RANK=3` at 0x100 and `WORLD_SIZE=8` at 0x200."""
    memory = Held(tmp_path)
    memory.write(0x100, b"RANK=3\0")
    memory.write(0x200, b"WORLD_SIZE=8\0")
    return memory


BOTH = {"RANK": "3", "WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("array", "pointers", "variables"),
    [
        (0x900, (0x100, 0x200, 0, 0x300), BOTH),
        (0x900, (0, 0x100), {}),
        (PAGE - 8, (0x100, 0x200, 0), BOTH),  # goes on in the next page
        (PAGE - 16, (0x100, 0x200, 0), BOTH),  # ends where the next page begins
        (2 * PAGE - 16, (0x100, 0x200), BOTH),  # ends where the memory does
        (2 * PAGE - 16, (0x100, 0), {"RANK": "3"}),
        (0x900, (0x100, 5 * PAGE, 0x200, 0), BOTH),  # one of its strings is not there
        (PAGE + 4, (0x100, 0), {"RANK": "3"}),
        (0, (), {}),
    ],
)
def test_an_array_of_variables(
    held_memory: Held, array: int, pointers: tuple[int, ...], variables: dict[str, str]
) -> None:
    held_memory.array(array, *pointers)
    assert held_memory.variables() == variables


@pytest.mark.parametrize(
    ("address", "length", "size"),
    [
        (0x300, 100, 100),
        (0x300, 511, 511),
        (0x300, 700, 512),  # cut where it is long
        (PAGE - 20, 100, 100),  # lies across two pages
        (PAGE - 512, 700, 512),
        (PAGE - 511, 700, 512),
        (2 * PAGE - 50, 49, 49),  # ends where the memory does
        (2 * PAGE - 50, 60, 0),
    ],
)
def test_a_string_is_read_to_its_end_or_to_a_limit(
    held_memory: Held, address: int, length: int, size: int
) -> None:
    value = "h" * (length - len("MASTER_ADDR="))
    held_memory.write(address, f"MASTER_ADDR={value}\0".encode())
    held_memory.array(0x900, address, 0)
    expected = value[: size - len("MASTER_ADDR=")]
    assert held_memory.variables() == ({"MASTER_ADDR": expected} if size else {})
