"""Threads that no tracer may stop: a real one inside an ioctl, and made-up ones in state D."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor_probes.look.stackreading import native_stacks, stacks
from grpo_doctor_probes.procs import stoppable
from tests.unit.probes.conftest import until

# Its main thread waits in an ioctl for ever, as for a GPU: for a notice of its own seccomp filter,
# which lets everything through. A helper sleeps.
PROCESS = """
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(allow)))
libc.prctl(38, 1, 0, 0, 0)
number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
device = libc.syscall(number, 1, 8, program)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(device, flush=True)
if device >= 0:
    libc.ioctl(device, ctypes.c_ulong(0xC0502100), ctypes.create_string_buffer(80))
"""


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose main thread is inside a call of what counts as a driver here."""
    monkeypatch.setattr(stoppable, "DRIVERS", ("anon_inode:seccomp",))
    with subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE) as process:
        assert process.stdout
        if int(process.stdout.readline()) < 0:
            pytest.skip("needs the right to make a seccomp filter")
        number = str(stoppable._IOCTL)
        file = Path(f"/proc/{process.pid}/syscall")
        until(lambda: file.read_text().split()[0] == number)
        yield process
        process.kill()


def test_its_python_stack_is_had_and_its_native_one_is_not(caller: subprocess.Popen[bytes]) -> None:
    reason = stoppable.why_not_process(caller.pid)
    assert reason.startswith(f"its thread {caller.pid} is inside a call of a driver (anon_inode:")
    before = switches(caller.pid)
    (native,) = native_stacks([caller.pid], at_most_s=20)
    assert "a driver" in native.problem
    (stack,) = stacks([caller.pid], at_most_s=20)
    assert stack.threads
    assert switches(caller.pid) == before


def switches(pid: int) -> list[str]:
    """How often the main thread left its core: a stop is one more."""
    lines = Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines()
    return [line for line in lines if "ctxt_switches" in line]


@pytest.fixture
def thread(tmp_path: Path) -> Path:
    """A thread of a made-up /proc, inside an ioctl on descriptor 3."""
    folder = tmp_path / "7" / "task" / "8"
    (folder / "fd").mkdir(parents=True)
    call = {"x86_64": 16}.get(platform.machine(), 29)
    (folder / "syscall").write_text(f"{call} 0x3 0x46 0x0 0x0 0x0 0x0 0x7ffc 0x7f01\n")
    (folder / "stat").write_text("8 (python) S 1 7 7 0\n")
    return folder


def test_uninterruptible_sleep_comes_first(tmp_path: Path, thread: Path) -> None:
    (thread / "stat").write_text("8 (python) D 1 7 7 0\n")
    assert stoppable.why_not_thread(7, 8, str(tmp_path)) == "is in uninterruptible sleep"
    assert stoppable.why_not_process(7, str(tmp_path)) == "its thread 8 is in uninterruptible sleep"
