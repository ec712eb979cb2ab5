"""Ranks that something outside them stops, freezes or kills."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

from tests.faults.host import eventually, freezer, memory
from tests.faults.registry import Outside, Scene, fault

ENDED = ("stuck", "dead")


def _state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat")
    return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "gone"


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    eventually("the rank is stopped", lambda: _state(pid) == "T")


def stop_rank(outside: Outside) -> None:
    _stop(outside.pid)


def stop_two_ranks(outside: Outside) -> None:
    for rank in (outside.culprit, (outside.culprit + 1) % len(outside.pids)):
        _stop(outside.pids[rank])


def freeze_rank(outside: Outside) -> None:
    group = Path(outside.facts["cgroup"])
    state = group / "freezer.state"
    outside.undo.callback(state.write_text, "THAWED")
    (group / "cgroup.procs").write_text(str(outside.pid))
    state.write_text("FROZEN")
    eventually("the rank is frozen", lambda: state.read_text() == "FROZEN\n")


def kill_rank(outside: Outside) -> None:
    os.kill(outside.pid, signal.SIGKILL)
    eventually("the rank is dead", lambda: _state(outside.pid) in {"Z", "gone"})


def limit_memory(outside: Outside) -> None:
    group = Path(outside.facts["cgroup"])
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    (group / "cgroup.procs").write_text(str(outside.pid))
    (outside.folder / "limited").touch()
    eventually("the rank is killed", lambda: _state(outside.pid) in {"Z", "gone"})


def _upload_logs(_queue: object) -> None:
    while True:
        signal.pause()


def start_log_uploader() -> None:
    """A forked helper inherits the rank's sockets: when the rank dies, its peers do not notice, as
    with NCCL, where nobody closes a connection for the dead.
    """
    context = multiprocessing.get_context("fork")
    context.Process(target=_upload_logs, args=(None,), daemon=True).start()


for _phase in ("rollout", "update"):

    @fault(f"SIGSTOP in {_phase}", "rank-stopped", phase=_phase, outside=stop_rank)
    def wait_to_be_stopped(scene: Scene) -> None:
        scene.arrived()


@fault("SIGSTOP, 8 ranks", "rank-stopped", phase="reward", outside=stop_rank, world_size=8)
def wait_to_be_stopped_8(scene: Scene) -> None:
    scene.arrived()


@fault("SIGSTOP, 64 ranks", "rank-stopped", phase="update", outside=stop_rank, world_size=64)
def wait_to_be_stopped_64(scene: Scene) -> None:
    scene.arrived()


@fault(
    "SIGSTOP of two ranks", "rank-stopped", phase="reward", outside=stop_two_ranks, world_size=8,
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def wait_to_be_stopped_twice(scene: Scene) -> None:
    scene.arrived()


@fault("frozen control group", "rank-stopped", phase="update", outside=freeze_rank, needs=freezer)
def wait_to_be_frozen(scene: Scene) -> None:
    scene.arrived()


@fault("SIGKILL, peers do not notice", "rank-dead", phase="reward", outside=kill_rank, states=ENDED)
def wait_to_be_killed(scene: Scene) -> None:
    start_log_uploader()
    scene.arrived()


@fault(
    "SIGKILL, a zombie is left", "rank-dead", phase="update", outside=kill_rank, states=ENDED,
    reaped=False,
)  # fmt: skip
def wait_to_be_a_zombie(scene: Scene) -> None:
    start_log_uploader()
    scene.arrived()


@fault("exception in one rank, peers do not notice", "rank-dead", phase="update", states=ENDED)
def raise_an_exception(scene: Scene) -> None:
    start_log_uploader()
    scene.takes_effect()
    raise ValueError("advantages contain NaN")


@fault(
    "out of memory in the rank's control group", "oom-killed", phase="rollout", states=ENDED,
    outside=limit_memory, needs=memory,
)  # fmt: skip
def collect_logits(scene: Scene) -> None:
    start_log_uploader()
    scene.arrived()
    logits = []
    while True:
        if (scene.folder / "limited").exists():
            logits.append(bytearray(os.urandom(1 << 20)))
        else:
            time.sleep(0.01)
