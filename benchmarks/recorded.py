"""Runs of trainers under `grpo-doctor run`, one thread in each process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def record(folder: Path, name: str, *program: str) -> None:
    """Records a run into `folder / name`; `program` are Python's arguments.

    Raises:
        subprocess.CalledProcessError: it failed; its output has been printed.
    """
    command = [sys.executable, "-m", "grpo_doctor", "run", "--no-report", "-o", name, "--"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    job = subprocess.run(
        [*command, sys.executable, *program],
        cwd=folder, env=one_thread, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if job.returncode:
        print(job.stdout[-2000:], job.stderr[-4000:])
    job.check_returncode()
