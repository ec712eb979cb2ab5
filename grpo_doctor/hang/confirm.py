"""Confirm a verdict by undoing what holds the job up: then it moves, or the verdict was wrong.

Only what does no harm, and only after the user has said yes: SIGCONT to a stopped process, thawing
a frozen control group, reading a full pipe that nobody reads.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from grpo_doctor.errors import NoJobError, OutputError, PermissionNeededError
from grpo_doctor.hang.certainty import at_most, with_worth
from grpo_doctor.hang.verdict import Diagnosis, Item, Undo
from grpo_doctor_probes.discover import still_there
from grpo_doctor_probes.evidence import Frame, Job, Look, ProcessLook
from grpo_doctor_probes.look import processes, stacks

SOURCE: Final = "confirmation"
_STILL_FOR_S: Final = 0.5  # who did not run once in this time was really waiting
_MOVES_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.1
_STACKS_S: Final = 3.0
_FREEZERS: Final = {"cgroup.freeze": b"0", "freezer.state": b"THAWED"}
_PIPE: Final = re.compile(r"/proc/(\d+)/fd/\d+\Z", re.ASCII)
_MOST_READS: Final = 64


def carry_out(undo: Undo, job: Job, within_s: float = _MOVES_WITHIN_S) -> bool:
    """Does it, and watches the ranks; returns whether the job moved.

    Args:
        undo: what to do; its process must be one of the job's, and still the same one.
        job: the job as it was found.
        within_s: for how long to watch for a rank that stood still and now runs.

    Raises:
        NoJobError: the process has ended.
        PermissionNeededError: it is another user's.
        OutputError: it can't be done for another reason.
    """
    member = job.member(undo.pid)
    if member is None or not still_there(member):
        raise NoJobError(f"process {undo.pid} has exited since the inspection; run attach again.")
    watch = _watch(job, undo.pid)
    act = _act(undo)
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        _carefully(act, undo)
        time.sleep(_LOOK_EVERY_S)
        if watch():
            return True
    return False


def confirmed(diagnosis: Diagnosis, undo: Undo, *, job_moved: bool) -> Diagnosis:
    """The diagnosis with what the undoing has shown."""
    verdict = diagnosis.verdict
    rank = next((state.rank for state in diagnosis.ranks if state.pid == undo.pid), None)
    words = "confirmed: the job resumed" if job_moved else "the job did not resume"
    item = Item(SOURCE, rank, f"{words} after {_DONE[undo.kind]} (process {undo.pid})")
    verdict = msgspec.structs.replace(verdict, evidence=(item, *verdict.evidence))
    verdict = with_worth(verdict, "proven") if job_moved else at_most(verdict, "possible")
    return msgspec.structs.replace(diagnosis, verdict=verdict)


_DONE: Final = {
    "continue": "SIGCONT",
    "thaw": "thawing its control group",
    "drain": "reading its full pipe",
}


def _watch(job: Job, touched: int) -> Callable[[], bool]:
    """A question: does a rank that waited go on? That of the touched process, if it is the only.

    What was touched runs in any case; that others go on shows that they waited for it.
    """
    first = processes(job)
    time.sleep(_STILL_FOR_S)
    second = processes(job)
    watched = tuple(m.pid for m in job.ranks() if m.pid != touched) or (touched,)
    waiting = still(first, second, watched)
    if waiting:
        return lambda: still(second, processes(job), waiting) != waiting
    places = _places(watched)
    return lambda: _places(watched) != places


def still(before: Look, after: Look, pids: Sequence[int]) -> tuple[int, ...]:
    """Which of the processes' main threads did not run between two looks."""
    return tuple(p for p in pids if _activity(before.of(p)) == _activity(after.of(p)))


def _places(pids: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
    """Where main threads stand: NCCL waits by spinning, so that counters say nothing."""
    read = stacks(pids, at_most_s=_STACKS_S)
    return {stack.pid: stack.threads[0].frames for stack in read if stack.threads}


def _activity(look: ProcessLook | None) -> tuple[int, ...]:
    """What grows when the main thread runs; the others have timers and always do."""
    if look is None or not look.threads:
        return ()
    main = look.threads[0]
    return main.cpu_ticks, main.voluntary, main.involuntary


def _act(undo: Undo) -> Callable[[], None]:
    if undo.kind == "continue":
        return lambda: os.kill(undo.pid, signal.SIGCONT)
    if undo.kind == "thaw":
        return lambda: _thaw(Path(undo.target))
    return lambda: _drain(Path(undo.target), undo.pid)


def _carefully(act: Callable[[], None], undo: Undo) -> None:
    try:
        act()
    except ProcessLookupError as problem:
        raise NoJobError(f"process {undo.pid} has just exited; run attach again.") from problem
    except PermissionError as problem:
        raise PermissionNeededError(
            f"no permission to change process {undo.pid}; run it again with sudo."
        ) from problem
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise OutputError(f"can't change {undo.target or undo.pid}: {reason}.") from problem


def _thaw(freezer: Path) -> None:
    """Writes to a freezer file of a control group, and to nothing else."""
    word = _FREEZERS.get(freezer.name)
    if word is None or not (freezer.parent / "cgroup.procs").exists():
        raise OutputError(f"{freezer} is not the freezer of a control group; nothing was written.")
    freezer.write_bytes(word)


def _drain(pipe: Path, pid: int) -> None:
    """Reads what is in a pipe of the process. Its reader loses what it held."""
    match = _PIPE.match(str(pipe))
    if match is None or int(match[1]) != pid:
        raise OutputError(f"{pipe} is not a pipe of process {pid}; nothing was read.")
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OutputError(f"{pipe} is not a pipe; nothing was read.")
        for _ in range(_MOST_READS):  # a writer that is as fast as we are would never end
            if not os.read(descriptor, 1 << 16):
                break
    except BlockingIOError:  # it is empty
        pass
    finally:
        os.close(descriptor)
