"""Starts the ranks of `tests.gpu.rank`, waits until their fault has happened, and ends them all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.rank import FAULT_RANKS, FAULT_STEP
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
STARTS_S = 180.0  # of several NCCL communicators over sockets
STANDS_S = 3.0  # so that all have come to wait
_LAST_LINES = 1500


class JobError(Exception):
    """The job did not come to its fault; the message says what its ranks wrote."""


@dataclass
class RunningJob:
    """Ranks on this host, by number."""

    folder: Path
    fault: str
    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def pids(self) -> list[int]:
        """Of all ranks."""
        return [rank.pid for rank in self.ranks]

    def living(self) -> list[int]:
        """Numbers of the ranks that have not ended; those that have are collected."""
        return [rank for rank, process in enumerate(self.ranks) if process.poll() is None]

    def step(self, rank: int) -> int:
        """The last step that a rank has finished; -1 before the first."""
        try:
            return int((self.folder / f"step-{rank}").read_text() or -1)
        except OSError:
            return -1

    def wait(self, holds: Callable[[], bool], at_most_s: float, what: str) -> None:
        """Until something holds. Raises JobError."""
        deadline = time.monotonic() + at_most_s
        while not holds():
            if time.monotonic() > deadline:
                raise JobError(f"{what} in {at_most_s:.0f} s\n{self.output()}")
            time.sleep(0.05)

    def come_to_the_fault(self) -> None:
        """Wait until the hurt rank stands there and the others can have come to wait for it."""
        ranks = range(len(self.ranks))
        reached = FAULT_STEP - 1
        self.wait(
            lambda: all(self.step(rank) >= reached for rank in ranks),
            STARTS_S,
            "not every rank got on",
        )
        time.sleep(STANDS_S)

    def output(self) -> str:
        """The end of what each rank wrote."""
        return "\n".join(
            f"rank {rank}: {path.read_text(errors='replace')[-_LAST_LINES:]}"
            for rank in range(len(self.ranks))
            if (path := self.folder / f"out-{rank}").exists()
        )


@contextmanager
def job(fault: str, folder: Path, *, ranks: int, backend: str) -> Iterator[RunningJob]:
    """A job with this fault; all of it is ended at the end."""
    assert fault in FAULT_RANKS
    folder.mkdir(parents=True)
    running = RunningJob(folder, fault)
    shared = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GRPO_DOCTOR")},
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
    }
    try:
        for rank in range(ranks):
            environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with (folder / f"out-{rank}").open("wb") as out:
                command = [sys.executable, "-m", "tests.gpu.rank", fault, str(folder), backend]
                running.ranks.append(
                    subprocess.Popen(
                        command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )  # fmt: skip
        yield running
    finally:
        for process in running.ranks:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in running.ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)  # in the driver it may not end
