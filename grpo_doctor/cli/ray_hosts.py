"""The nodes of a Ray cluster, each looked at by a task that needs no CPU and no GPU."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_doctor.cli.hosts import Cluster, Look, Said
from grpo_doctor.errors import UsageError
from grpo_doctor_probes.evidence import RayFact
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable

_TASK_S = 600
_OF_RAY = re.compile(r"node:|object_store_memory$|memory$|bundle_group_|.*_group_[0-9a-f]{20}")
# Not one that the job has ended, or no longer refers to.
_WHY_DIED = re.compile(r"reason: (WORKER_DIED|NODE_DIED|OWNER_DIED)|creation_task_failure_context")
_OOM = "memory monitor"
_CONNECTS_S = _FACTS_S = 5.0
_MOST_TASKS = 32
_ENDED = ("FINISHED", "FAILED", "NIL")


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


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a cluster that are alive, and a sentence for each that is not."""

    ray: Any
    alive: list[dict[str, Any]]
    absent: tuple[str, ...]

    def started(
        self, command: list[str], remote: str | None, given: Sequence[bytes | None] = ()
    ) -> list[Node]:
        """Start a command of ours on each; `given` is its standard input, node by node, and None
        where it does not run."""
        from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
            NodeAffinitySchedulingStrategy,
        )

        def run_here(program: list[str], given: bytes) -> tuple[int, bytes, str]:
            # By value into the worker's Python: nothing of ours is imported there.
            import subprocess  # noqa: PLC0415
            import sys  # noqa: PLC0415

            words = [*(program or [sys.executable, "-m", "grpo_doctor"]), *command]
            done = subprocess.run(words, input=given, capture_output=True, check=False)
            return done.returncode, done.stdout, done.stderr[-20_000:].decode("utf-8", "replace")

        program = shlex.split(remote or "")
        task = self.ray.remote(num_cpus=0, max_retries=0)(run_here)
        hosts = []
        for node, text in zip(self.alive, given or [b""] * len(self.alive)):
            if text is not None:
                pin = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                started = task.options(scheduling_strategy=pin).remote(program, text)
                hosts.append(Node(node["NodeManagerHostname"], self.ray, started))
        return hosts


def connected(address: str) -> Nodes:
    """Connect to the cluster at `address`; `auto` is the one that this machine belongs to.

    Raises:
        UsageError: no Ray here, no cluster there, or one of another version.
    """
    # Else Ray warns that tasks without a GPU will see all GPUs one day; these touch none.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")  # one a second, where 20 are usual
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - the job's own
    except ImportError as problem:
        raise UsageError(
            "--ray needs Ray in the Python that runs grpo-doctor: install grpo-doctor into the "
            f"job's environment and run it there ({problem})."
        ) from problem
    _must_answer(_resolved(address))
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as problem:
        reason = str(problem).strip().splitlines()[0][:300] if str(problem).strip() else "no answer"
        raise _no_cluster(address, reason) from problem
    nodes = ray.nodes()
    gone = (node["NodeManagerHostname"] for node in nodes if not node["Alive"])
    return Nodes(
        ray,
        [node for node in nodes if node["Alive"]],
        tuple(f"node {name} is dead for Ray" for name in gone),
    )


def ray_cluster(address: str, remote: str | None, look: Look) -> Cluster:
    """The nodes of the cluster at `address`, inspected. Raises as `connected`."""
    nodes = connected(address)
    hosts = nodes.started(look([], len(nodes.alive)), remote)
    return Cluster(f"the Ray cluster at {address}", hosts, nodes.absent, ray_facts(nodes.ray))


def ray_facts(ray: Any) -> tuple[RayFact, ...]:
    """Return what the cluster reports of itself, from its GCS: that needs no dashboard, which the
    API of `ray list` does. Empty parts where this version of Ray calls them otherwise.
    """
    facts = [RayFact("has", wants=_resources(ray.cluster_resources()))]
    for part in (_dead_actors, _pending_groups, _pending_demands, _open_tasks):
        with contextlib.suppress(Exception):  # Ray raises its own kinds, by version
            facts += within(_FACTS_S, lambda part=part: [*part(ray)])  # type: ignore[misc]
    return tuple(facts)


def _dead_actors(ray: Any) -> Iterator[RayFact]:
    state = ray._private.state  # noqa: SLF001 - `ray.util.state` needs the dashboard
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    over = {job["JobID"] for job in state.jobs() if job["IsDead"]}
    for actor in state.actors().values():
        cause = str(actor.get("DeathCause", ""))
        reason = _WHY_DIED.search(cause)
        if actor["State"] == "DEAD" and actor["JobID"] not in over and reason:
            yield RayFact(
                "died",
                printable(f"actor {actor['ActorClassName']}"),
                "OUT_OF_MEMORY" if _OOM in cause else reason[1] or "its __init__ failed",
                pid=actor["Pid"],
                node=printable(names.get(actor["Address"]["NodeID"], "")),
                age_s=max(0.0, time.time() - actor["EndTime"] / 1e3),
            )


def _pending_groups(ray: Any) -> Iterator[RayFact]:
    for group in ray.util.placement_group_table().values():
        if group["state"] in ("PENDING", "RESCHEDULING"):
            bundles = list(group["bundles"].values())
            same = bundles.count(bundles[0])
            what = f"placement group {group['name'] or group['placement_group_id'][:12]}"
            reason = group["stats"].get("scheduling_state", "")
            yield RayFact("pending", printable(what), reason, _resources(bundles[0]), same)


def _pending_demands(ray: Any) -> Iterator[RayFact]:
    from ray.autoscaler.v2.sdk import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        get_cluster_status,
    )

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    for demand in status.resource_demands.ray_task_actor_demand:
        for row in demand.bundles_by_count:
            yield RayFact("pending", "task or actor", "", _resources(row.bundle), row.count)


def _open_tasks(ray: Any) -> Iterator[RayFact]:
    """Tasks that have not ended and have started none that has not, alike ones together, the oldest
    first. `ray list tasks` needs the dashboard, the GCS does not."""
    from ray.core.generated.common_pb2 import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        TaskStatus,
        TaskType,
    )
    from ray.core.generated.gcs_pb2 import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        TaskEvents,
    )

    state = ray._private.state.state  # noqa: SLF001
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    over = {job["JobID"] for job in ray._private.state.jobs() if job["IsDead"]}  # noqa: SLF001
    over |= {ray.get_runtime_context().get_job_id()}  # our own inspection
    latest: dict[bytes, Any] = {}
    for text in state._connect_and_get_accessor().get_task_events():  # noqa: SLF001
        event = TaskEvents.FromString(text)
        before = latest.get(event.task_id)
        if before is None or before.attempt_number <= event.attempt_number:
            latest[event.task_id] = event
    tasks: dict[bytes, tuple[Any, str, int]] = {}
    for key, event in latest.items():
        reached = event.state_updates.state_ts_ns
        status = max(reached, key=lambda each: (reached[each], each), default=0)
        if TaskStatus.Name(status) not in _ENDED and event.job_id.hex() not in over:
            tasks[key] = event, TaskStatus.Name(status), reached[status]
    callers = {event.task_info.parent_task_id for event, _, _ in tasks.values()}
    alike: dict[tuple[Any, ...], list[int]] = {}
    for key, (event, status, since_ns) in tasks.items():
        info, at = event.task_info, event.state_updates
        if key not in callers and info.type != TaskType.Value("DRIVER_TASK"):
            wants = tuple(info.required_resources.items())
            where = names.get(at.node_id.hex(), ""), at.worker_pid
            alike.setdefault((info.func_or_class_name, status, wants, *where), []).append(since_ns)
    for row, since in sorted(alike.items(), key=lambda entry: min(entry[1]))[:_MOST_TASKS]:
        what, status, wants, node, pid = row
        age_s = max(0.0, time.time() - min(since) / 1e9)
        yield RayFact("task", printable(what), status, _resources(dict(wants)), len(since), pid,
                      printable(node), age_s)  # fmt: skip


def _resources(amounts: dict[str, float]) -> dict[str, float]:
    """Those that a user asks for by name, without Ray's own of each node and object store."""
    shown = {name: n for name, n in amounts.items() if not _OF_RAY.match(name)}
    return {printable(name): float(n) for name, n in sorted(shown.items())}


def _resolved(address: str) -> str:
    """Return the address that `auto` stands for: RAY_ADDRESS, or what the last cluster here, which
    may have ended, left in a file.
    """
    with contextlib.suppress(Exception):  # no cluster, or a version that finds it otherwise
        from ray._private import services  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        if address == "auto":
            return str(services.get_ray_address_from_environment("auto", None))
    return address


def _must_answer(address: str) -> None:
    """Ray itself tries for minutes to reach an address where nothing listens."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECTS_S).close()
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise _no_cluster(address, f"{reason}; the cluster may have ended") from problem


def _no_cluster(address: str, reason: str) -> UsageError:
    return UsageError(
        f"--ray {address}: {reason.rstrip('.')}. Run it on a node of the cluster, with the job's "
        "Python, or give its address, such as 10.0.0.1:6379."
    )
