"""A process that has imported the torch stack and forks trainers: `tests.recorded.server`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
TRAINER = "grpo_doctor_trainer"
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GRPO_DOCTOR", "TORCHELASTIC")


class ServerEndedError(Exception):
    """The process that forks is gone."""


class ForkServer:
    """Starts one job after another; a job's output is `job.log` in its folder."""

    def __init__(self) -> None:
        variables = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.recorded.server"],
            cwd=ROOT, env=variables | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._pid = 0
        self._answer(300)  # ten seconds, minutes on a busy machine

    def start(
        self,
        folder: Path,
        flags: Sequence[str] = (),
        *,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
        module: str = TRAINER,
    ) -> int:
        """Starts ranks that run a module in `folder`; the pid of what waits for them."""
        job = {
            "folder": str(folder), "flags": list(flags), "ranks": ranks, "port": free_port(),
            "environment": dict(environment or {}), "module": module,
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(job) + "\n").encode())
        self._process.stdin.flush()
        self._pid = int(self._answer(60)["pid"])
        return self._pid

    def wait(self, patience_s: float) -> int:
        """The exit code of the job that was started; one that takes longer is killed."""
        try:
            return int(self._answer(patience_s)["code"])
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            return int(self._answer(60)["code"])

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience_s)
        if not ready:
            raise TimeoutError(f"no answer in {patience_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(30)
            raise ServerEndedError(f"the server has ended with exit code {code}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@functools.cache
def shared() -> ForkServer:
    """One for all jobs of a test run: importing torch and its friends takes ten seconds."""
    server = ForkServer()
    atexit.register(server.close)
    return server
