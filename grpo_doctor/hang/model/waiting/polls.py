"""Ranks that ask, sleep and ask again: since when, and for what. A sleep that ended is no progress,
so such a wait is as old as the job's last collective. Pure.
"""

from __future__ import annotations

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.process.stacks import is_heartbeat
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import tasks

_AT_ONE_LINE = ("polling", "still")


def all_ask(view: JobView) -> bool:
    """Return whether every rank came back to one line, outside calls to other ranks, and no process
    of the job was seen to work for them.
    """
    ranks = view.by_rank.values()
    works = (
        proc.activity.progresses or proc.activity.library_works
        for proc in view.procs
        if not ray_code.serves(proc.member) and proc.member.role != "launcher"
    )
    polls = any(proc.activity.kind == "polling" for proc in ranks)
    return polls and all(map(_asks, ranks)) and not view.elsewhere and not any(works)


def _asks(proc: Process) -> bool:
    ready = not proc.waits and not tasks.is_idle(proc)
    return ready and bool(proc.place.frames) and proc.activity.kind in _AT_ONE_LINE


def asked_s(view: JobView) -> float | None:
    """Return for how long all ranks have asked, at most: since the last collective of any. None
    where they do not, or where no recorder shows it.
    """
    return tasks.quiet_s(view) if all_ask(view) else None


def asks_again(proc: Process) -> bool:
    """Return whether a line of the user's own sleeps again and again."""
    own = bool(proc.place.frames) and proc.place.user == proc.place.frames[0]
    return own and not proc.waits and proc.activity.kind == "polling"


def what_for(view: JobView, proc: Process) -> str:
    """Return what a rank asks for, after the place where it asks; empty where nothing shows it."""
    values = (row.values.get("path", "") for row in view.evidence.arguments if row.pid == proc.pid)
    path = next(filter(None, values), "")
    if path and asks_again(proc):
        return f" (path {path})"
    beside = [t for t in proc.python_threads[1:] if t.frames and not is_heartbeat(t.name)]
    own_queue = any(frame.file.endswith("/queue.py") for frame in proc.place.frames[:3])
    if own_queue and not beside and proc.place.call == "queue":
        return ", which no other Python thread of the process can fill"
    return ""
