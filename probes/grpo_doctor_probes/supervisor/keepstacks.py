"""Keeps the Python stacks of processes as text, one file each; stops none of them.

    python -m grpo_doctor_probes.supervisor.keepstacks FOLDER PID...

A program of its own, so that its caller waits for nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.rundir import make_private

AT_MOST_S = 20.0


def keep_stacks(folder: Path, pids: Sequence[int]) -> None:
    """Write `folder/<pid>.txt` for each; where there are none, why. Raises OSError."""
    make_private(str(folder))
    program = pyspy.binary() or "py-spy"
    for pid in pids:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(folder / f"{pid}.txt", flags, 0o600), "wb") as file:
            file.write(_stack(program, pid))


def start(folder: Path, pids: Sequence[int]) -> subprocess.Popen[bytes]:
    """The same in a process of its own, which terminal signals do not reach. Raises OSError."""
    words = [sys.executable, "-m", __name__, str(folder), *map(str, pids)]
    null = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=null, stdout=null, stderr=null, start_new_session=True)


def _stack(program: str, pid: int) -> bytes:
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        run = subprocess.run(command, capture_output=True, timeout=AT_MOST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"no stack: {problem}\n".encode()
    return run.stdout or b"no stack: " + run.stderr


if __name__ == "__main__":
    keep_stacks(Path(sys.argv[1]), [int(word) for word in sys.argv[2:]])
