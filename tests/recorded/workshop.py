"""One process with the torch stack, many recorded trainings."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE
from grpo_doctor_probes.samplers.sampler import Sampling
from grpo_doctor_probes.supervisor.job import Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch
from grpo_doctor_probes.supervisor.runfile import RunFile, create_run_dir
from tests.recorded.forks import ForkServer


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

    def __init__(self, server: ForkServer) -> None:
        self._server = server

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
        pid = self._server.start(folder, flags, ranks=ranks, environment=variables)
        run_file = RunFile(run_dir, launch, list(flags), cast(Job, _Started(pid, *began)), "test")
        run_file.write()
        sampling = Sampling(run_dir, os.uname().nodename, pid, 10.0)
        sampling.start()
        try:
            code = self._server.wait(patience_s)
        finally:
            sampling.stop()
        state = "failed" if code else "finished"
        run_file.write(Ended(state, code, None, time.monotonic_ns()))
        if code:
            log = (folder / "job.log").read_text(errors="replace")
            raise TrainingFailedError(f"{' '.join(flags)}: exit code {code}\n{log[-3000:]}")
        return run_dir


@contextlib.contextmanager
def workshop() -> Iterator[Workshop]:
    """A workshop whose process is ended at the end."""
    server = ForkServer()
    try:
        yield Workshop(server)
    finally:
        server.close()
