"""The nodes of a Ray cluster, each looked at by a task that needs no CPU and no GPU."""

from __future__ import annotations

import logging
import os
import shlex
import socket
from dataclasses import dataclass
from typing import Any

from grpo_doctor.cli.hosts import Cluster, Look, Said
from grpo_doctor.errors import UsageError

_TASK_S = 600
_CONNECTS_S = 5.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive, and the task that looks at it."""

    name: str
    ray: Any
    task: Any

    def look(self) -> Said:
        """Waits for the task's answer."""
        try:
            return Said(*self.ray.get(self.task, timeout=_TASK_S))
        except Exception as problem:  # noqa: BLE001 - Ray raises its own kinds, by version
            return Said(1, b"", f"{type(problem).__name__}: {str(problem).strip()[:300]}")

    def end(self) -> None:
        """Ends the task and its worker."""
        self.ray.cancel(self.task, force=True)


def ray_cluster(address: str, remote: str | None, look: Look) -> Cluster:
    """The nodes of the cluster at `address`; `auto` is the one that this machine belongs to.

    Raises:
        UsageError: no Ray here, no cluster there, or one of another version.
    """
    # Else Ray warns that tasks without a GPU will see all GPUs one day; these touch none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - the job's own
        from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
            NodeAffinitySchedulingStrategy,
        )
    except ImportError as problem:
        raise UsageError(
            "--ray needs Ray in the Python that runs grpo-doctor: install grpo-doctor into the "
            f"job's environment and run it there ({problem})."
        ) from problem
    _must_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:
        reason = str(problem).strip().splitlines()[0][:300] if str(problem).strip() else "no answer"
        raise _no_cluster(address, reason) from problem
    nodes = ray.nodes()
    alive = [node for node in nodes if node["Alive"]]
    gone = tuple(
        f"node {node['NodeManagerHostname']} is dead for Ray" for node in nodes if not node["Alive"]
    )
    words = look(shlex.split(remote) if remote else [], len(alive))

    def look_here(command: list[str], own: bool) -> tuple[int, bytes, str]:
        # By value into the worker's Python: nothing of ours is imported there.
        import subprocess  # noqa: PLC0415
        import sys  # noqa: PLC0415

        program = [] if own else [sys.executable, "-m", "grpo_doctor"]
        done = subprocess.run(
            [*program, *command], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return done.returncode, done.stdout, done.stderr[-20_000:].decode("utf-8", "replace")

    task = ray.remote(num_cpus=0, max_retries=0)(look_here)
    hosts = [
        Node(
            node["NodeManagerHostname"],
            ray,
            task.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(words, bool(remote)),
        )
        for node in alive
    ]
    return Cluster(f"the Ray cluster at {address}", hosts, gone)


def _must_answer(address: str) -> None:
    """Ray itself tries for minutes to reach an address where nothing listens."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECTS_S).close()
    except (OSError, OverflowError) as problem:
        raise _no_cluster(address, getattr(problem, "strerror", None) or str(problem)) from problem


def _no_cluster(address: str, reason: str) -> UsageError:
    return UsageError(
        f"--ray {address}: {reason}. Run it on a node of the cluster, with the job's Python, or "
        "give its address, such as 10.0.0.1:6379."
    )
