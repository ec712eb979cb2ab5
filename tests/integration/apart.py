"""A job in a process namespace of its own: an attach without arguments finds it alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

DEADLINE_S = 240.0
YOUNG_S = 90.0  # of a rank that polls a wait of 60 s is believed
ISOLATING = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# What a killed job leaves in shared memory and temporary folders goes with its namespace.
OWN_MEMORY = "mount -t tmpfs tmpfs /dev/shm; export TMPDIR=/dev/shm; "


def _not_well(document: dict[str, Any]) -> bool:
    return document["verdict"]["state"] in ("stuck", "dead")


@dataclass(frozen=True)
class Apart:
    """A running job, and what starts commands where they see it."""

    inside: tuple[str, ...]

    def attach(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As the job's user would, from this environment."""
        return subprocess.run(
            [*self.inside, sys.executable, "-m", "grpo_doctor", "attach", *arguments],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip

    def document(self, condition: Callable[[dict[str, Any]], bool] = _not_well) -> dict[str, Any]:
        """What `attach --json` says without a PID, once it is what is wanted: without a wish once
        the wait is unusual for this job. What it says when that takes too long."""
        start_s = time.monotonic()
        while True:
            done = self.attach("--json")
            assert done.stdout, done.stderr
            document: dict[str, Any] = json.loads(done.stdout)
            if condition(document) or time.monotonic() - start_s > YOUNG_S:
                return document


def may_isolate() -> bool:
    """Whether this user may make a process namespace."""
    try:
        probe = subprocess.run([*ISOLATING, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return probe.returncode == 0


@contextmanager
def apart(
    command: Sequence[str], folder: Path, marks: int, environment: Mapping[str, str]
) -> Iterator[Apart]:
    """Runs `command` until `marks` files with a number as name lie in `folder`, and ends it."""
    if not may_isolate():
        pytest.skip("this user may make no process namespace")
    with (folder / "log").open("wb") as log:
        # A pipe that nobody writes to: `input()` waits for ever.
        process = subprocess.Popen(
            [*ISOLATING, "sh", "-c", OWN_MEMORY + 'exec timeout 600 "$@"', "sh", *command],
            stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **environment},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + DEADLINE_S
        while sum(path.name.isdecimal() for path in folder.iterdir()) < marks:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        (first,) = psutil.Process(process.pid).children()
        yield Apart(("nsenter", "--target", str(first.pid), "--pid", "--mount", "--"))
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a job and all that it started, in whatever process namespace."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself, and all below it
        family = psutil.Process(process.pid).children(recursive=True)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.kill()
    process.wait()
    psutil.wait_procs(family, timeout=10)
