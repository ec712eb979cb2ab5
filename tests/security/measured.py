"""What a command costs: run in a process of its own under limits that the kernel holds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 4 << 30
# A process counts the memory of the one that it was forked from as its own peak, but not in VmHWM.
_MODULE = """
import atexit, os, runpy, sys
def told(descriptor=int(sys.argv.pop(1))):
    with open("/proc/self/status", "rb") as status:
        os.write(descriptor, next(line for line in status if line.startswith(b"VmHWM")))
atexit.register(told)
runpy.run_module("grpo_doctor", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command: seconds of CPU, peak memory, its exit code and what it wrote."""

    seconds: float
    peak_bytes: int
    code: int
    output: bytes


def cost(arguments: list[str], folder: Path, most_s: float = 20.0) -> Cost:
    """Run grpo-doctor in `folder`; the code is negative where a limit of the kernel ended it."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(most_s), int(most_s) + 1))

    read, write = os.pipe()
    told_read, told_write = os.pipe()
    command = [sys.executable, "-c", _MODULE, str(told_write), *arguments]
    environment = {k: v for k, v in os.environ.items() if k not in ("CI", "GITHUB_ACTIONS")}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=write,
        pass_fds=(told_write,),
        preexec_fn=limits,  # noqa: PLW1509 - no threads here
    )
    os.close(write)
    os.close(told_write)
    with os.fdopen(read, "rb") as file:
        output = file.read()
    with os.fdopen(told_read, "rb") as file:
        peaks = [int(line.split()[1]) << 10 for line in file]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    return Cost(seconds, max(peaks, default=0), process.returncode, output)
