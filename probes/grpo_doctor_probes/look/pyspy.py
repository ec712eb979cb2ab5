"""Runs py-spy on one process and reads what it prints: stacks, and a few variables."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from grpo_doctor_probes.discover.permission import ptrace_remedy
from grpo_doctor_probes.evidence import Frame, Locals, PythonThread
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.record.redact import redact_text

NOT_INSTALLED = "py-spy is not installed, so there are no stacks: pip install 'py-spy>=0.4'"
# Runaway recursion has thousands of frames; the innermost tell where it is.
_MOST_FRAMES = 200
_PATH_LENGTH = 300
_DENIED = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")
_NUMBERS = (
    *("src", "dst", "group_src", "group_dst", "peer", "rank", "tag", "root"),
    *("world_size", "async_op"),
)
# Keys of the rendezvous store and names of groups are made by libraries.
_NAMES = frozenset({"key", "keys", "store_key", "group_name", "barrier_name"})
_RANKS = ("ranks", "global_ranks_in_group")
# Where code has the file that it asks for again and again: a lock's, a marker's.
_PATHS = re.compile(r"(\w*_)?(path|file|filename|marker|flag|sentinel)")
# Of torch's `_jit_compile`, whose FileBaton is the file `lock` in it (torch 2.13).
_BUILD_FOLDER = "build_directory"
_NUMBER = re.compile(r"-?\d{1,9}|None|True|False")
_LIST = re.compile(r"\[\d{1,9}(, \d{1,9})*(, \.\.\.)?\]")  # py-spy cuts long ones off
_PLAIN = dict.fromkeys(_NUMBERS, _NUMBER) | dict.fromkeys(_RANKS, _LIST)
_NAME = re.compile(r"""["']?([A-Za-z0-9_:/.\-]{1,60})["']?""")
_PATH = re.compile(r"""["']?(/[^\s"'\\]{1,200})["']?""")
# One py-spy takes 16 ms of a core. Several at once get their share next to ranks that are all busy.
_AT_ONCE = 4
_Answer = TypeVar("_Answer")
_LOCALS_AT_MOST_S = 3.0


class PySpyError(Exception):
    """py-spy gave no stacks; the message says why and what to do."""


def binary() -> str | None:
    """py-spy of the environment that this tool runs in, else the first one on PATH.

    Else of `pip install --user` or `--target`, whose programs are on no PATH in many images.
    """
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy") or _of_packages()


def _of_packages() -> str | None:
    for folder in map(Path, filter(None, sys.path)):
        if any(folder.glob("py_spy-*.dist-info")):
            for root in (folder, *folder.parents[2:3]):
                if (program := root / "bin" / "py-spy").is_file():
                    return str(program)
    return None


def dump(pid: int, *options: str, at_most_s: float) -> list[dict[str, Any]]:
    """Return the threads that `py-spy dump --json OPTIONS` prints.

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
        run = subprocess.run(
            command,
            capture_output=True,
            timeout=max(at_most_s, 0.05),
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise PySpyError(f"py-spy gave no answer within {at_most_s:.1f} s") from error
    except OSError as error:
        raise PySpyError(f"{program} does not start: {error.strerror}") from error
    if run.returncode != 0:
        raise PySpyError(_reason(run.stderr.decode("utf-8", "replace"), pid))
    try:
        threads = json.loads(run.stdout)
    except ValueError as error:
        raise PySpyError("py-spy printed no JSON: pip install -U py-spy") from error
    return [thread for thread in threads if isinstance(thread, dict)]


def python_threads(threads: list[dict[str, Any]], pid: int) -> tuple[PythonThread, ...]:
    """Threads as py-spy prints them, the main thread first, and no name or path left raw."""
    python_threads = [_thread(thread, pid) for thread in threads if thread.get("pid", pid) == pid]
    return tuple(sorted(python_threads, key=lambda thread: (thread.tid != pid, thread.tid)))


def _thread(printed: dict[str, Any], pid: int) -> PythonThread:
    name = printable(str(printed.get("thread_name") or ""), 80)
    tid = printed.get("os_thread_id")
    if tid is None:  # where py-spy cannot tell (old Pythons), only the main thread has a number
        tid = pid if name == "MainThread" else 0
    frames = printed.get("frames") or []
    return PythonThread(
        tid=int(tid),
        name=name,
        frames=tuple(frame(each) for each in frames[:_MOST_FRAMES]),
        owns_gil=bool(printed.get("owns_gil")),
    )


def frame(printed: dict[str, Any]) -> Frame:
    """Return a frame as py-spy prints it."""
    return Frame(
        function=printable(str(printed.get("name") or "?")),
        file=printable(str(printed.get("filename") or ""), _PATH_LENGTH),
        line=int(printed.get("line") or 0),
    )


def _reason(stderr: str, pid: int) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any(word in stderr.lower() for word in _DENIED):
        return f"no right to read the memory of process {pid}: {ptrace_remedy()}"
    text = next((line for line in lines if line.startswith("Error:")), lines[0] if lines else "")
    return f"py-spy: {printable(text.removeprefix('Error:').strip() or 'failed without a reason')}"


def arguments(pid: int, functions: frozenset[str]) -> dict[str, dict[str, str]]:
    """`{function: {argument: value}}` of those `functions` that are on the main thread's stack.

    Empty where py-spy does not show them. Of a function that is on the stack twice, the innermost
    call.

    py-spy can print every local variable; prompts and keys are among them. So names and values are
    let through one by one, and everything else is dropped before anything else sees it.
    """
    try:
        frames = _main_frames(pid, _LOCALS_AT_MOST_S)
    except PySpyError:  # `stacks` of the same process has said why
        return {}
    arguments_of: dict[str, dict[str, str]] = {}
    for printed in frames:
        name = frame(printed).function.rpartition(".")[2]  # a method's has its class
        if name in functions and name not in arguments_of:
            arguments_of[name] = safe_values(printed.get("locals") or [])
    return arguments_of


def _main_frames(pid: int, at_most_s: float) -> list[dict[str, Any]]:
    """The main thread's frames with their variables; none without Python. Raises PySpyError."""
    threads = dump(pid, "--nonblocking", "--locals", at_most_s=at_most_s)
    return next((t.get("frames") or [] for t in threads if t.get("os_thread_id") == pid), [])


def safe_values(variables: list[dict[str, Any]]) -> dict[str, str]:
    """Return the variables that may be shown, out of those that py-spy lists for a frame."""
    shown = {}
    for variable in variables:
        name, value = str(variable.get("name")), str(variable.get("repr"))
        if name in _PLAIN and _PLAIN[name].fullmatch(value):
            shown[name] = value
        elif name in _NAMES and (match := _NAME.fullmatch(value)):
            shown[name] = redact_text(match[1])
        elif _PATHS.fullmatch(name) and (match := _PATH.fullmatch(value)):
            shown["path"] = redact_text(match[1])
        elif name == _BUILD_FOLDER and (match := _PATH.fullmatch(value)):
            shown["path"] = f"{redact_text(match[1])}/lock"
    return shown


def locals_digests(pids: Sequence[int], *, at_most_s: float) -> tuple[Locals, ...]:
    """Of the main thread of each of these processes, in this order. Stops none of them.

    A training loop is nearly always met at its one line that waits for the GPU. In a loop that
    makes progress some variable changes each time; in one that hangs, none does. Nothing but a
    digest of them is kept.
    """
    return in_parallel(_digest, pids, at_most_s)


def in_parallel(
    look: Callable[[int, float], _Answer], pids: Sequence[int], at_most_s: float
) -> tuple[_Answer, ...]:
    """Return what `look` returns for each process, given a common deadline (time.monotonic)."""
    deadline = time.monotonic() + at_most_s
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="py-spy") as pool:
        return tuple(pool.map(lambda pid: look(pid, deadline), pids))


def _digest(pid: int, deadline: float) -> Locals:
    at_ns = time.monotonic_ns()
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return Locals(pid, at_ns, problem="no time was left to read its variables")
    try:
        frames = _main_frames(pid, min(left_s, _LOCALS_AT_MOST_S))
    except PySpyError as error:
        return Locals(pid, at_ns, problem=str(error))
    if not frames:
        return Locals(pid, at_ns, problem="its main thread has no Python frames")
    return Locals(pid, at_ns, digest_of(frames))


def digest_of(frames: Sequence[dict[str, Any]]) -> str:
    """Hash of places and variables: it changes when the thread moves on."""
    hashed = hashlib.sha256()
    for entry in frames:
        where = f"{entry.get('name')}\0{entry.get('filename')}\0{entry.get('line')}\n"
        hashed.update(where.encode("utf-8", "replace"))
        for variable in entry.get("locals") or ():
            text = f"{variable.get('name')}\0{variable.get('addr')}\0{variable.get('repr')}\n"
            hashed.update(text.encode("utf-8", "replace"))
    return hashed.hexdigest()[:16]
