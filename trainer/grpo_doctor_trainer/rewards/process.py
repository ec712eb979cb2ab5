"""One worker process of the reward functions, seen from the rank."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.worker_status import WorkerStatus

if TYPE_CHECKING:
    from grpo_doctor_trainer.rewards.calls import Call

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo_doctor_trainer.rewards.worker import main; "
    "main(*map(int, sys.argv[2:5]), parent_thread_lasts=sys.argv[5] == '1')"
)
_PATIENCE_S = 10.0


@dataclass
class WorkerProcess:
    """A process with its pipe, and what it has to do.

    Attributes:
        process: the process.
        connection: the pipe to it.
        status: what it leaves there.
        pinned: jobs that only it can do; the calls of a job run together.
        running: the calls that it has not answered yet.
        since: when it began with them, or with the present completion (time.monotonic).
        progress: the completion of the call that it is at.
        prepared: whether it has said that it is ready for calls.
    """

    process: subprocess.Popen[bytes]
    connection: Connection
    status: WorkerStatus
    pinned: list[list[Call]] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    since: float = 0.0
    progress: int = -1
    prepared: bool = False

    def kill(self) -> None:
        """Ends the process and what it started; if it has ended, its exit code stays."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_PATIENCE_S)

    def end(self) -> None:
        """Kills the process and lets go of its pipe and file."""
        self.kill()
        self.connection.close()
        os.close(self.status.descriptor)


def start_worker() -> WorkerProcess:
    """Starts a process that imports the reward code alone.

    Raises:
        RewardError: the machine has no room for one more.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as file:
        status = WorkerStatus(os.dup(file.fileno()))
    lasts = threading.current_thread() is threading.main_thread()
    numbers = (theirs.fileno(), status.descriptor, os.getpid(), int(lasts))
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            pass_fds=numbers[:2],
            start_new_session=True,  # Ctrl-C is for the rank; and all it starts can be killed
        )
    except OSError as error:
        raise RewardError(
            f"no process for the reward functions can be started: {error}; "
            "--reward_num_workers 0 runs them in the trainer's own"
        ) from error
    theirs.close()
    return WorkerProcess(process, ours, status)
