"""Runs py-spy on one process and reads what it prints."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from grpo_doctor_probes.discover.permission import ptrace_remedy
from grpo_doctor_probes.evidence import Frame, PythonThread
from grpo_doctor_probes.printable import printable

NOT_INSTALLED = "py-spy is not installed, so there are no stacks: pip install 'py-spy>=0.4'"
# Runaway recursion has thousands of frames; the innermost tell where it is.
_MOST_FRAMES = 200
_PATH_LENGTH = 300
_DENIED = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")


class PySpyError(Exception):
    """py-spy gave no stacks; the message says why and what to do."""


class DumpTimeoutError(PySpyError):
    """py-spy ran out of time."""


def binary() -> str | None:
    """py-spy of the environment that this tool runs in, else the first one on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def dump(pid: int, *options: str, at_most_s: float) -> list[dict[str, Any]]:
    """The threads that `py-spy dump --json OPTIONS` prints.

    Raises:
        PySpyError: it is not installed, was refused, ran out of time, or made nothing of `pid`.
    """
    program = binary()
    if program is None:
        raise PySpyError(NOT_INSTALLED)
    command = [program, "dump", "--json", *options, "--pid", str(pid)]
    try:
        # A session of its own: killed by a Ctrl-C in the midst of it, or with us, a blocking py-spy
        # would leave the process stopped; left alone, it ends and lets go of it.
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=max(at_most_s, 0.05),
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise DumpTimeoutError(f"py-spy gave no answer within {at_most_s:.1f} s") from error
    except OSError as error:
        raise PySpyError(f"{program} does not start: {error.strerror}") from error
    if done.returncode != 0:
        raise PySpyError(_reason(done.stderr.decode("utf-8", "replace"), pid))
    try:
        threads = json.loads(done.stdout)
    except ValueError as error:
        raise PySpyError("py-spy printed no JSON: pip install -U py-spy") from error
    return [thread for thread in threads if isinstance(thread, dict)]


def python_threads(threads: list[dict[str, Any]], pid: int) -> tuple[PythonThread, ...]:
    """Threads as py-spy prints them, the main thread first, and no name or path left raw."""
    found = [_thread(one, pid) for one in threads if one.get("pid", pid) == pid]
    return tuple(sorted(found, key=lambda thread: (thread.tid != pid, thread.tid)))


def _thread(one: dict[str, Any], pid: int) -> PythonThread:
    name = printable(str(one.get("thread_name") or ""), 80)
    tid = one.get("os_thread_id")
    if tid is None:  # where py-spy cannot tell (old Pythons), only the main thread has a number
        tid = pid if name == "MainThread" else 0
    frames = one.get("frames") or []
    return PythonThread(
        tid=int(tid),
        name=name,
        frames=tuple(frame(each) for each in frames[:_MOST_FRAMES]),
        active=bool(one.get("active")),
        owns_gil=bool(one.get("owns_gil")),
    )


def frame(one: dict[str, Any]) -> Frame:
    """A frame as py-spy prints it."""
    return Frame(
        function=printable(str(one.get("name") or "?")),
        file=printable(str(one.get("filename") or ""), _PATH_LENGTH),
        line=int(one.get("line") or 0),
    )


def _reason(stderr: str, pid: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any(word in stderr.lower() for word in _DENIED):
        return f"no right to read the memory of process {pid}: {ptrace_remedy()}"
    text = next((line for line in lines if line.startswith("Error:")), lines[0] if lines else "")
    return f"py-spy: {printable(text.removeprefix('Error:').strip() or 'failed without a reason')}"
