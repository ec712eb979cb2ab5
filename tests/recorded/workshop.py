"""One process with the torch stack, many recorded trainings."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from grpo_doctor_probes.rundir import RUN_DIR_VARIABLE
from grpo_doctor_probes.samplers import Sampling
from grpo_doctor_probes.supervisor import Ended, Job, Launch, RunFile, create_run_dir

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GRPO_DOCTOR", "TORCHELASTIC")


class TrainingFailedError(Exception):
    """A training did not end well; the message has the end of its log."""


@dataclass(frozen=True)
class _Started:
    """What `RunFile` asks of a job."""

    pid: int
    started_ns: int
    started_unix_ns: int


class Workshop:
    """Trains in forks of one process; one training at a time."""

    def __init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.recorded.server"],
            cwd=ROOT, env=kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._answer(120)

    def train(
        self,
        flags: Sequence[str],
        folder: Path,
        *,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
        patience_s: float = 240.0,
    ) -> Path:
        """Trains with these flags in `folder`; returns the run directory, `folder / "run"`.

        Raises:
            TrainingFailedError: it ended with an exit code that is not 0, or not in time.
        """
        folder.mkdir(parents=True, exist_ok=True)
        run_dir = create_run_dir(folder / "run")
        variables = {RUN_DIR_VARIABLE: str(run_dir.resolve()), **(environment or {})}
        launch = Launch(("grpo-doctor-trainer", *flags), variables, bundled=True, world_size=ranks)
        began = time.monotonic_ns(), time.time_ns()
        self._ask(
            {
                "folder": str(folder), "flags": list(flags), "ranks": ranks,
                "port": free_port(), "environment": variables,
            }
        )  # fmt: skip
        job = _Started(self._answer(60)["pid"], *began)
        run_file = RunFile(run_dir, launch, list(flags), cast(Job, job), "test")
        run_file.write()
        sampling = Sampling(run_dir, os.uname().nodename, job.pid, 10.0)
        sampling.start()
        try:
            code = self._answer(patience_s)["code"]
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            code = self._answer(60)["code"]
        finally:
            sampling.stop()
        state = "failed" if code else "finished"
        run_file.write(Ended(state, code, None, time.monotonic_ns()))
        if code:
            log = (folder / "job.log").read_text(errors="replace")
            raise TrainingFailedError(f"{' '.join(flags)}: exit code {code}\n{log[-3000:]}")
        return run_dir

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(job) + "\n").encode())
        self._process.stdin.flush()

    def _answer(self, patience_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience_s)
        if not ready:
            raise TimeoutError(f"no answer in {patience_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise TrainingFailedError(
                f"the server has ended with exit code {self._process.wait(30)}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def workshop() -> Iterator[Workshop]:
    """A workshop that is closed at the end."""
    one = Workshop()
    try:
        yield one
    finally:
        one.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
