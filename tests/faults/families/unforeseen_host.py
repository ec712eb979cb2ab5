"""What a rank meets on its host: terminals, tracers, limits, locks, pipes and crowded cores."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.families.control import _state
from tests.faults.families.slow import CORE, HOGS, _work
from tests.faults.families.unforeseen_ranks import all_ranks
from tests.faults.host import Unavailable, each_thread, eventually, memory, silent_fuse
from tests.faults.registry import Outside, Scene, fault

BUSY = ("stuck", "slow")


@fault("a background rank reads its terminal", "rank-stopped", phase="update",
       extra={"terminal": True})  # fmt: skip
def ask_the_user(scene: Scene) -> None:
    """The kernel stops it with SIGTTIN, as in `python train.py &` with an `input()`."""
    os.setpgid(0, 0)
    scene.takes_effect()
    with open("/dev/tty") as keys:  # noqa: PTH123 - a device
        keys.readline()


_TRACER = """
import ctypes, os, signal, sys
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
if libc.ptrace(16, pid, None, None) != 0: sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0x40000000)
print("attached", flush=True)
signal.pause()
"""


def leave_a_debugger(outside: Outside) -> None:
    command = [sys.executable, "-S", "-c", _TRACER, str(outside.pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    outside.undo.callback(tracer.wait)
    outside.undo.callback(tracer.kill)
    assert tracer.stdout is not None
    if not tracer.stdout.readline():
        raise Unavailable(f"ptrace: {tracer.stderr.read() if tracer.stderr else ''}")
    eventually("the rank is traced", lambda: _state(outside.pid) == "t")


@fault("a debugger was left attached", "rank-stopped", phase="rollout", outside=leave_a_debugger)
def wait_for_a_debugger(scene: Scene) -> None:
    scene.arrived()


@fault("endless work in C without the GIL", "user-code-busy", phase="rollout", states=BUSY,
       busy=True)  # fmt: skip
def hash_dataset(scene: Scene) -> None:
    scene.takes_effect()
    hashlib.pbkdf2_hmac("sha256", b"dataset", b"salt", 2_000_000_000)


def limit_memory_without_killing(outside: Outside) -> None:
    group = Path(outside.facts["cgroup"])
    (group / "memory.oom_control").write_text("1")
    (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    outside.undo.callback((group / "memory.limit_in_bytes").write_text, "-1")
    (group / "cgroup.procs").write_text(str(outside.pid))
    (outside.folder / "limited").touch()
    control = group / "memory.oom_control"
    eventually("the group is full", lambda: "under_oom 1" in control.read_text())


@fault("a full memory group that pauses instead of killing", "rank-stopped", "oom-killed",
       phase="rollout", outside=limit_memory_without_killing, needs=memory)  # fmt: skip
def collect_logits(scene: Scene) -> None:
    scene.arrived()
    logits = []
    while True:
        if (scene.folder / "limited").exists():
            logits.append(bytearray(os.urandom(1 << 20)))
        else:
            time.sleep(0.01)


def crowd_the_only_core(outside: Outside) -> None:
    """A wrong affinity for all ranks, on a core that others use as well."""
    for pid in outside.pids.values():
        each_thread(pid, lambda thread: os.sched_setaffinity(thread, {CORE}))
    for _ in range(HOGS):
        hog = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        outside.undo.callback(hog.wait)
        outside.undo.callback(hog.kill)
        os.sched_setaffinity(hog.pid, {CORE})


@fault("all ranks pinned to one crowded core", "cpu-starved", phase="rollout", states=("slow",),
       everyone=True, outside=crowd_the_only_core, guilty=all_ranks, busy=True)  # fmt: skip
def generate_crowded(scene: Scene) -> None:
    _work(scene, 0.3)


@fault("no file descriptors left, tried again and again", "user-code-blocked", "storage-blocked",
       phase="rollout", states=BUSY)  # fmt: skip
def open_shards(scene: Scene) -> None:
    limit = sum(1 for _ in Path("/proc/self/fd").iterdir()) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    shards = []
    scene.takes_effect()
    while True:
        try:
            shards.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            time.sleep(1)


@fault(
    "two ranks lock two caches in opposite orders", "lock-held", "storage-blocked",
    phase="rollout", everyone=True,
    guilty=lambda culprit, world: frozenset({culprit, (culprit + 1) % world}),
)  # fmt: skip
def lock_caches(scene: Scene) -> None:
    if scene.rank not in {scene.culprit, scene.partner}:
        return
    names = ["model.lock", "tokenizer.lock"]
    if scene.guilty:
        names.reverse()
    first, second = ((scene.folder / name).open("w") for name in names)
    fcntl.flock(first, fcntl.LOCK_EX)
    (scene.folder / f"locked{scene.rank}").touch()
    other_rank = scene.partner if scene.guilty else scene.culprit
    eventually("the other has its lock", (scene.folder / f"locked{other_rank}").exists)
    scene.takes_effect()
    fcntl.flock(second, fcntl.LOCK_EX)


@fault("a program on a hung mount", "child-stuck", "storage-blocked", phase="rollout",
       needs=silent_fuse)  # fmt: skip
def run_tool(scene: Scene) -> None:
    scene.takes_effect()
    subprocess.run([f"{scene.facts['disk']}/tokenize"], check=False)


@fault("a log that nobody reads, written by every rank", "user-code-blocked", "child-stuck",
       phase="update", everyone=True, guilty=all_ranks)  # fmt: skip
def print_through_tee(scene: Scene) -> None:
    """`torchrun ... | tee log`, with `tee` stopped by Ctrl-S or Ctrl-Z in its terminal."""
    path = scene.folder / "output"
    if scene.guilty:
        os.mkfifo(path)
    eventually("the pipe is there", path.exists)
    if scene.guilty:
        tee = subprocess.Popen(["tee", "log"], stdin=os.open(path, os.O_RDWR))
        os.kill(tee.pid, signal.SIGSTOP)
    pipe = os.open(path, os.O_WRONLY)
    os.dup2(pipe, 1)
    scene.takes_effect()
    while True:
        sys.stdout.write("advantages " * 100 + "\n")
