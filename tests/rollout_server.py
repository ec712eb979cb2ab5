"""A rollout server as a user starts it, for tests: its own process, in a session of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procstat import read_stat

START_S = 240
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class Server:
    """A server process and its files."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """What a trainer needs to use it."""
        return ("--use_vllm", "true", "--vllm_mode", "server", "--vllm_server_port", str(self.port))

    @property
    def log(self) -> Path:
        return self.folder / "grpo-doctor-out" / "serve" / f"serve-{self.port}.log"


def environment(folder: Path) -> dict[str, str]:
    recorded = {"GRPO_DOCTOR_RUN_DIR": str(folder / "run"), "OMP_NUM_THREADS": "1"}
    return os.environ | recorded


def started(folder: Path, *flags: str) -> Server:
    """Starts a server, and comes back when it has a port; it goes on to load its engine."""
    printed = folder / "server.txt"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "grpo_doctor_trainer.serve", "--port", "0", *flags],
            cwd=folder, env=environment(folder), start_new_session=True,
            stdout=output, stderr=output,
        )  # fmt: skip
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if match := re.search(r"http://127\.0\.0\.1:(\d+)", printed.read_text()):
            return Server(process, int(match[1]), folder)
        assert process.poll() is None, printed.read_text()
        time.sleep(0.1)
    raise AssertionError(printed.read_text())


def kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def members(session: int) -> list[str]:
    """The command lines of the processes that are left of a session."""
    commands = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            stat = read_stat(entry)
            if stat.session == session and not stat.dead:
                commands.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands


def engine_memory() -> set[Path]:
    """What tensor-parallel engines of servers have in shared memory.

    The name of theirs begins with an identifier; that of an engine in a rank, of which a job of
    another test may have some, begins with the group.
    """
    return {path for pattern in ("?*-tp:*", "*vllm*") for path in SHARED_MEMORY.glob(pattern)}
