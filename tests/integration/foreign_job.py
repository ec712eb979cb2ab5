"""A training script of somebody else: torch alone, started by torchrun, no recorder in it.

    torchrun --nproc_per_node 2 foreign_job.py FOLDER FAULT [TIMEOUT_S]

At step AT rank 1 gets the fault, once FOLDER/go is there, and writes when (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

AT, GUILTY, AGAIN_S = 40, 1, 30.0
PR_SET_NAME = 15
ENGINE = "import time; time.sleep(1e6)"
DEAF_CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1e6)"
folder, fault = Path(sys.argv[1]), sys.argv[2]
again_s: list[float] = []


def compute_rewards(step: int) -> None:
    time.sleep(0.02)
    if again_s and time.monotonic() > again_s[0]:
        again_s.clear()
        (folder / "again").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    if step == AT and dist.get_rank() == GUILTY:
        while not (folder / "go").exists():
            time.sleep(0.05)
        (folder / "hung_ns").write_text(str(time.monotonic_ns()))
        FAULTS[fault]()


def sleep() -> None:
    time.sleep(1e6)


def stop() -> None:
    """And once more, when the job has gone on for a while."""
    os.kill(os.getpid(), signal.SIGSTOP)
    again_s.append(time.monotonic() + AGAIN_S)


def stop_once() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def raises() -> NoReturn:
    raise ValueError("a reward without a number")


def out_of_memory() -> None:
    bytearray(1 << 30)


def engine_dies() -> None:
    engine.kill()
    time.sleep(0.5)
    raise ConnectionError("the engine closed the connection")


FAULTS = {
    f.__name__: f
    for f in (sleep, stop, stop_once, killed, segfault, raises, out_of_memory, engine_dies)
}


def main() -> None:
    timeout_s = float(sys.argv[3]) if len(sys.argv) > 3 else 600.0
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout_s))
    (folder / f"{dist.get_rank()}.pid").write_text(str(os.getpid()))
    (folder / f"{dist.get_rank()}.engine").write_text(str(engine.pid))
    for step in range(10**9):
        compute_rewards(step)
        dist.all_reduce(torch.ones(64))


if __name__ == "__main__":
    command = ["VLLM::EngineCore", "-c", ENGINE if fault != "sleep" else DEAF_CHILD]
    null = subprocess.DEVNULL  # it outlives some of these jobs, and would hold their output open
    engine = subprocess.Popen(
        command, executable=sys.executable, stdout=null, stderr=null,
        start_new_session=fault == "sleep",
    )  # fmt: skip
    main()
