"""Jobs that move, but slowly, because one rank gets less than its share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.host import cpu, each_thread, eventually, swap
from tests.faults.registry import Outside, Scene, fault

SLOW = ("slow",)
CORE = 0
HOGS = 6
OFFLOADED_BYTES = 256 << 20


def _work(scene: Scene, seconds: float) -> None:
    """So much processor time; the same work in every step from here on."""
    scene.trainer.happens = _slower(scene, seconds)
    scene.arrived()


def _slower(scene: Scene, seconds: float) -> object:
    def happens(phase: str, _trainer: object) -> bool:
        if phase == "rollout":
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                sum(range(1000))
        return False

    return happens


def limit_cores(outside: Outside) -> None:
    group = Path(outside.facts["cgroup"])
    (group / "cpu.cfs_quota_us").write_text("3000")
    (group / "cgroup.procs").write_text(str(outside.pid))


@fault("3 % of a core by quota", "cpu-starved", phase="rollout", states=SLOW, outside=limit_cores,
       needs=cpu, busy=True)  # fmt: skip
def generate_on_little(scene: Scene) -> None:
    _work(scene, 0.1)


def crowd_the_core(outside: Outside) -> None:
    """The rank and other busy processes on one core, the rank with the lowest priority."""

    def give_way(thread: int) -> None:
        os.sched_setaffinity(thread, {CORE})
        os.setpriority(os.PRIO_PROCESS, thread, 19)

    os.sched_setaffinity(outside.pid, {CORE})
    each_thread(outside.pid, give_way)
    for _ in range(HOGS):
        hog = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        outside.undo.callback(hog.wait)
        outside.undo.callback(hog.kill)
        os.sched_setaffinity(hog.pid, {CORE})


@fault("nice 19 on a crowded core", "cpu-starved", phase="rollout", states=SLOW,
       outside=crowd_the_core, busy=True)  # fmt: skip
def generate_on_a_crowded_core(scene: Scene) -> None:
    _work(scene, 0.1)


def limit_memory(outside: Outside) -> None:
    """Of what it needs from here on the half: the rest is swapped out, and in when touched."""
    group = Path(outside.facts["cgroup"])
    (group / "memory.limit_in_bytes").write_text(str(OFFLOADED_BYTES // 2))
    (group / "cgroup.procs").write_text(str(outside.pid))
    (outside.folder / "limited").touch()


@fault("offloaded state is swapped out", "memory-swapped", phase="update", states=SLOW,
       outside=limit_memory, needs=swap)  # fmt: skip
def step_on_offloaded_state(scene: Scene) -> None:
    scene.arrived()
    eventually("the bench has acted", (scene.folder / "limited").exists)
    state = bytearray(os.urandom(1 << 20)) * (OFFLOADED_BYTES >> 20)
    while True:
        for page in range(0, len(state), 4096):
            state[page] ^= 1


@fault(
    "garbage collection storm",
    "user-code-busy",
    phase="update",
    states=("slow", "stuck"),
    busy=True,
)
def collect_garbage(scene: Scene) -> None:
    keep = [[i] for i in range(1_500_000)]
    scene.takes_effect()
    while keep:
        gc.collect()
