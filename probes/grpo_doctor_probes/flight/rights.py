"""Why tracing a process is refused, and what the user does about it."""

from __future__ import annotations

import platform
from pathlib import Path

_SYS_PTRACE = 19  # number of the capability
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def why_refused(pid: int, proc: Path = Path("/proc"), yama: Path = _YAMA) -> str:
    """One or two sentences about a refused trace of `pid`: the reason and the remedy."""
    ours, theirs = status(proc / "self"), status(proc / str(pid))
    capable = int(ours.get("CapEff", "0"), 16) >> _SYS_PTRACE & 1
    owner, user = theirs.get("Uid", "").split()[:1], ours.get("Uid", "").split()[1:2]
    scope = _number(yama)
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3: this kernel lets nobody trace until it is rebooted"
    if capable:
        return (
            "this process may trace, but not that one: it has rights that we lack, or a security"
            " module forbids it; attach from the host as root"
        )
    if scope:
        return f"kernel.yama.ptrace_scope is {scope}: {_CAPABILITY}, or set it to 0 with sysctl"
    if owner != user:
        return f"it belongs to user {''.join(owner) or 'unknown'}: attach as that user, or as root"
    if ours.get("Seccomp", "0") != "0" and _kernel() < (4, 8):
        return "this container's seccomp profile forbids tracing on kernels before 4.8"
    return f"it can't be traced by its own user (not dumpable): {_CAPABILITY}"


_CAPABILITY = (
    "attach as root, or with the SYS_PTRACE capability (docker run --cap-add SYS_PTRACE,"
    " kubectl debug --profile=sysadmin)"
)


def status(folder: Path) -> dict[str, str]:
    """The lines of a /proc status file, {} where it can't be read."""
    try:
        text = (folder / "status").read_text("utf-8", "replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.split("\n"))
    return {name: value.strip() for name, _, value in lines}


def tracer_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Who traces a thread of `pid`, in words; "" if nobody does."""
    for task in (proc / str(pid) / "task").glob("*"):
        tracer = status(task).get("TracerPid", "0")
        if tracer != "0":
            name = status(proc / tracer).get("Name", "unknown")
            return f"process {tracer} ({name.encode('unicode_escape').decode()})"
    return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
