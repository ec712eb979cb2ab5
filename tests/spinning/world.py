"""Starting a spinning job with its devices, striking it, and leaving nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.events import count, wait_for
from tests.faults.host import http_server
from tests.faults.jobs import ROOT, environment
from tests.ports import free_port
from tests.spinning import recordings
from tests.spinning.cases import Case
from tests.spinning.rank import HEALTHY_STEPS, Spec, groups_of
from tests.spinning.stand_ins import StandIns, World, compiled

START_S = 90.0
_PREFIX_VARIABLE = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


@dataclass
class SpinningJob:
    """A job that is running. `pids` are its ranks'."""

    case: Case
    spec: Spec
    pids: dict[int, int]

    @property
    def folder(self) -> Path:
        return Path(self.spec.folder)

    def progress(self) -> int:
        """How many operations the devices have finished."""
        world = recordings.read_world(self.spec.world)
        return sum(world.queues[rank].finished for rank in self.pids)

    def victim(self) -> int:
        """The process of a rank that was not struck."""
        return next(pid for rank, pid in self.pids.items() if rank != self.spec.culprit)


class Bench:
    """Compiled libraries, and the process that forks jobs."""

    def __init__(self, stand_ins: StandIns) -> None:
        self.stand_ins = stand_ins
        self.prefix = stand_ins.folder / "recordings" / "nccl_trace_rank_"
        self.prefix.parent.mkdir()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.spinning.launcher"],
            cwd=ROOT, env=environment() | {_PREFIX_VARIABLE: str(self.prefix)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def fork(self, spec: Spec) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(spec.to_json() + "\n")
        self._server.stdin.flush()

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.kill()
        self._server.wait()


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """Everything that jobs need."""
    with compiled() as stand_ins, contextlib.closing(Bench(stand_ins)) as ready:
        yield ready


@contextlib.contextmanager
def struck(server: Bench, case: Case, seed: int) -> Iterator[SpinningJob]:
    """A job in which the case has taken effect and has had its age.

    Raises:
        Silence: it did not come up, or was not struck.
    """
    dice = random.Random(f"{seed} {case.name}")
    size = dice.choice([size for size in (2, 3, 3, 4) if size >= case.least_ranks])
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix="spinning-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        spec = Spec(
            str(folder), str(server.stand_ins.folder), free_port(), case.name, size,
            dice.randrange(size), HEALTHY_STEPS + dice.randrange(4), case.proxies, case.named,
        )  # fmt: skip
        _prepare(spec)
        if case.judge:
            port = undo.enter_context(http_server())["port"]
            (folder / "judge").write_text(str(port))
        device = subprocess.Popen([str(server.stand_ins.device), str(spec.world)])
        undo.callback(device.wait)
        undo.callback(device.kill)
        job = _started(server, case, spec, undo)
        _strike(job)
        time.sleep(case.age_s * dice.uniform(0.9, 1.3))
        if case.recorded:
            undo.callback(_forget, server.prefix.parent)
            world = recordings.read_world(spec.world)
            recordings.write(world, list(_living(job)), size, server.prefix)
        yield job


def _prepare(spec: Spec) -> None:
    with spec.world.open("wb") as file:
        file.truncate(ctypes.sizeof(World))
    assert len(groups_of(spec.world_size)) == len(recordings.NAMES)


def _started(server: Bench, case: Case, spec: Spec, undo: contextlib.ExitStack) -> SpinningJob:
    folder = Path(spec.folder)
    server.fork(spec)
    events = wait_for(folder, lambda events: count(events, "launched") > 0, "launch", START_S)
    launched = next(event for event in events if event.name == "launched")
    undo.callback(_kill, launched.pid)
    job = SpinningJob(case, spec, {int(r): pid for r, pid in launched.more["ranks"].items()})
    everyone = spec.world_size
    wait_for(folder, lambda events: count(events, "healthy") >= everyone, "healthy steps", START_S)
    return job


def _strike(job: SpinningJob) -> None:
    if job.case.outside == "stop":
        os.kill(job.pids[job.spec.culprit], signal.SIGSTOP)
    elif job.case.outside == "break links":
        _break(job)
    elif job.case.strike is not None:
        expected = job.spec.world_size if job.case.everyone else 1
        wait_for(job.folder, lambda events: count(events, "effect") >= expected, "effect", START_S)


def _break(job: SpinningJob) -> None:
    """The links of the group in whose collective the phase ends."""
    group = {"sync": 0, "update": 1, "logprob": 2, "broadcast": 3}[job.case.phase]
    with job.spec.world.open("r+b") as file:
        file.seek(World.broken_groups.offset)
        file.write((1 << group).to_bytes(4, sys.byteorder))


def _living(job: SpinningJob) -> Iterator[int]:
    """Ranks whose recorder can still write."""
    for rank, pid in job.pids.items():
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZXT":
                yield rank


def _forget(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _kill(session: int) -> None:
    """The launcher's session, until nothing of it is left."""
    deadline = time.monotonic() + 20.0
    while pids := _of_session(session):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} of a job cannot be killed")
        time.sleep(0.02)


def _of_session(session: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                pids.append(int(entry.name))
    return pids
