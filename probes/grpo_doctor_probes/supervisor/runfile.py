"""The run directory and its `run.json`: written when the job starts and again when it ends."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor_probes.record import clock, sidecar
from grpo_doctor_probes.record.redact import redact_command
from grpo_doctor_probes.record.rundir import HOSTS, JOINED, NODES, RANKS, RUN_JSON, make_private
from grpo_doctor_probes.supervisor.job import Ended, Job
from grpo_doctor_probes.supervisor.launch import Launch
from grpo_doctor_probes.supervisor.node import ONLY_NODE, Node, has_ended

DEFAULT_PARENT = "grpo-doctor-out"


def create_run_dir(folder: Path | None, node: Node = ONLY_NODE) -> Path:
    """Make the run directory, readable by the user alone; default `grpo-doctor-out/<time>`.

    A host of a job on several hosts gets its own part of it, which the tasks of a host share.

    Raises:
        FileExistsError: `folder` holds something already, other than servers and hosts that joined
        this run before it began: two runs never share a folder. OSError: it can't be made.
    """
    if folder is None and node.name:
        folder = Path(DEFAULT_PARENT) / node.name
    if folder is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = Path(DEFAULT_PARENT) / stamp
        attempt = 1
        while folder.exists():
            attempt += 1
            folder = Path(DEFAULT_PARENT) / f"{stamp}-{attempt}"
    if node.number and (folder / RUN_JSON).exists() and has_ended(folder):
        raise FileExistsError(f"{folder} has the recording of a run that has ended")
    folder = node.folder(folder)
    if not node.task and folder.exists():
        names = {entry.name for entry in folder.iterdir()}
        if RUN_JSON in names or (not node.shared and names - {JOINED}):
            raise FileExistsError(f"{folder} is not empty")
    make_private(str(folder))
    return _with_parts(folder)


def create_joined_dir(run_dir: Path) -> Path:
    """Make the run directory of a server that joins a run, which may not have begun yet.

    Raises:
        FileExistsError: `run_dir` is a folder of something else.
        OSError: it can't be made.
    """
    names = {entry.name for entry in run_dir.iterdir()} if run_dir.exists() else set()
    if names and not names & {JOINED, RUN_JSON, RANKS}:
        raise FileExistsError(f"{run_dir} is not a run directory")
    parent = run_dir / JOINED
    make_private(str(parent))
    # Two containers may have one host name and one process id.
    return _with_parts(Path(tempfile.mkdtemp(prefix=f"{os.uname().nodename}-", dir=parent)))


def _with_parts(folder: Path) -> Path:
    for name in (RANKS, HOSTS):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    return folder


def remove_if_unused(folder: Path) -> None:
    """Take a run directory away again in which nothing was written; a server's parents too."""
    within = folder.parent.name in (JOINED, NODES)
    parents = (folder.parent, folder.parent.parent) if within else ()
    with contextlib.suppress(OSError):
        for unused in (folder / RANKS, folder / HOSTS, folder, *parents):
            unused.rmdir()


@dataclass(frozen=True, slots=True)
class RunFile:
    """What the supervisor knows of a run. `write` raises OSError."""

    folder: Path
    launch: Launch
    arguments: Sequence[str]
    job: Job
    tool_version: str
    node: Node = ONLY_NODE

    def write(self, ended: Ended | None = None, known: Mapping[str, Any] | None = None) -> None:
        """Replace `run.json`; without `ended` the run counts as running.

        Args:
            ended: how it ended.
            known: what else is known of it: `flight_recorder`, `hangs`, `deaths`.
        """
        facts: dict[str, Any] = {
            "format": 1,
            "id": self.folder.resolve().name,
            "command": redact_command(self.arguments or ["(no arguments)"]),
            "bundled": self.launch.bundled,
            "launched": redact_command(self.launch.command),
            "cwd": str(Path.cwd()),
            "world_size": self.launch.world_size,
            "host": os.uname().nodename,
            "nodes": self.node.count,
            "job_pid": self.job.pid,
            "started_ns": self.job.started_ns,
            "started_unix_ns": self.job.started_unix_ns,
            "clock_id": clock.identity(),
            "clock": clock.read(),
            "versions": {"grpo-doctor": self.tool_version, "python": platform.python_version()},
        }
        if ended is not None:
            facts["end"] = {
                "state": ended.state,
                "code": ended.code,
                "signal": ended.signal,
                "ended_ns": ended.ended_ns,
            }
        facts |= known or {}
        sidecar.write_json(str(self.folder / RUN_JSON), facts)
