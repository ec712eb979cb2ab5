"""Stand-ins for what a cause reads of a process: only what the test is about is set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from grpo_doctor.hang.model.view import Process
from grpo_doctor_probes.evidence import Frame


class Named(SimpleNamespace):
    """A process with the names of a real one."""

    number, on_host, name = Process.number, Process.on_host, Process.name
    name_of, shell = Process.name_of, Process.shell


def place(*frames: Frame, user: Frame | None = None, **more: Any) -> Any:
    return SimpleNamespace(**{"frames": frames, "user": user, "call": "", "purpose": "", **more})


def activity(kind: str = "still", **more: Any) -> Any:
    defaults = {"cpu_share": 0.0, "delay_share": 0.0, "still_s": None, "seconds": 1.0, "wakes": 0}
    progresses = kind in ("working", "busy")
    return SimpleNamespace(
        **{**defaults, "kind": kind, "io_bytes": 0, "progresses": progresses, **more}
    )


def process(**more: Any) -> Any:
    """One that stands still, without a stack, held by nothing."""
    defaults: dict[str, Any] = {
        "pid": 101,
        "rank": 1,
        "phase": None,
        "member": SimpleNamespace(
            command="/v/bin/python w.py", name="python", host="", role="rank"
        ),
        "activity": activity(),
        "place": place(),
        "blocking_place": place(),
        "cannot_run": False,
        "hold": None,
        "blocked": (),
        "waits": False,
        "ended_meanwhile": False,
        "main": None,
        "blocking_thread": None,
        "limits": (),
    }
    return Named(**{**defaults, **more})
