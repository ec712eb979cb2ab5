"""Says why there is nothing to look at, and what to do next."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from grpo_doctor_probes.discover.permission import ptrace_remedy
from grpo_doctor_probes.discover.scan import Process
from grpo_doctor_probes.evidence import Job
from grpo_doctor_probes.procs.printable import NAME_LIMIT, printable

_MOST_NAMED = 4
_NEXT = "Give the PID of a rank, or none to inspect every job of this host."


class NoJobError(Exception):
    """No such process, or none that belongs to a training job."""


class NoPermissionError(Exception):
    """The job is there, but it can't be read. The message has this machine's remedy."""


def no_such_member(pid: int, process: Process | None, proc: Path) -> Exception:
    """For a PID that is of no job."""
    if process is None and _exists(pid, proc):
        return NoPermissionError(
            f"process {pid} exists, but /proc does not show it to {user_name(os.geteuid())} "
            f"(hidepid). {ptrace_remedy(proc)}"
        )
    if process is None:
        return NoJobError(
            f"there is no process {pid}: it has ended, or runs on another host or in another "
            "container. Without a PID every job of this host is inspected; for a job that has "
            "ended, give its flight-recorder dumps with --dumps DIR."
        )
    title = f"process {pid} ({printable(process.name, NAME_LIMIT) or 'nameless'})"
    if not process.readable and not (process.kernel or process.dead):
        return NoPermissionError(
            f"{title} belongs to {user_name(process.uid)}, and its environment can't be read. "
            f"{ptrace_remedy(proc)}"
        )
    if process.kernel or process.dead:
        why = "it is a thread of the kernel" if process.kernel else "it has ended (a zombie)"
    elif process.pid == 1:
        why = "it is the parent of all that runs here"
    else:
        why = "it has not loaded torch, and no launcher, rank or engine is among its parents"
    return NoJobError(f"{title} is no part of a training job: {why}. {_NEXT}")


def _exists(pid: int, proc: Path) -> bool:
    if (proc / str(pid)).is_dir():
        return True
    if proc != Path("/proc") or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        pass
    return False


def nothing_found(processes: Iterable[Process], proc: Path) -> Exception:
    """For a host without a job."""
    users = {p.uid for p in processes if p.python and p.large and not p.readable}
    if users:
        names = ", ".join(sorted(map(user_name, users)))
        return NoPermissionError(
            "no training job can be read here, but there are large Python processes of other "
            f"users ({names}). {ptrace_remedy(proc)}"
        )
    return NoJobError(
        "no training job was found on this host: no Python process has a RANK, or threads of gloo "
        "or NCCL. A container shows only its own processes: run it inside the job's container, "
        "or on the host. For a single training process, give its PID."
    )


def only_helpers_left(helpers: Iterable[Process], pid: int | None = None) -> NoJobError:
    """Return which helpers of an ended job are left, and how to end them.

    For a host on which nothing else is left, or for a PID that is one of these.
    """
    helpers = list(helpers)
    names = [
        f"{process.pid} ({printable(process.name, NAME_LIMIT) or 'nameless'})"
        for process in helpers[:_MOST_NAMED]
    ]
    if more := len(helpers) - len(names):
        names.append(f"{more} more")
    pids = " ".join(str(process.pid) for process in helpers)
    nothing = "no training job runs on this host"
    return NoJobError(
        f"{nothing if pid is None else f'process {pid} belongs to no running job'}. "
        "A job that ended left helpers of its ranks, which may hold GPU memory and ports: "
        f"{', '.join(names)}. End them: kill {pids}; after some seconds, kill -9 {pids}"
    )


def nothing_readable(job: Job, proc: Path) -> NoPermissionError:
    """For a job of another user."""
    names = ", ".join(sorted({user_name(member.uid) for member in job.members}))
    pids = ", ".join(str(member.pid) for member in job.members[:8])
    return NoPermissionError(
        f"there is a job of {names} (processes {pids}), but it can't be read. {ptrace_remedy(proc)}"
    )


def user_name(uid: int) -> str:
    """Return the user's name, safe to print; `user 1000` where it has none here."""
    with contextlib.suppress(KeyError):
        return printable(pwd.getpwuid(uid).pw_name, NAME_LIMIT)
    return f"user {uid}"
