"""In one or two sentences, how this user gets the right to look into a process here.

Reading /proc/PID/environ or memory needs the same user and no more capabilities than ours, or
CAP_SYS_PTRACE; ptrace(2) needs what Yama's ptrace_scope asks on top.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.procfs import content, status

_CONTAINER_ID = re.compile(r"(?:^|[/\-:.])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_SYS_PTRACE = 1 << 19  # CAP_SYS_PTRACE of linux/capability.h
_SCOPE_MEANINGS = {
    1: "it allows a process to trace only its own children",
    2: "it allows only administrators to trace",
    3: "it forbids all tracing until the next boot",
}


def has_our_network(proc: Path, pid: int) -> bool:
    """Whether an address that it listens on is the same for us; so we take it where that is hidden.

    In another name space 127.0.0.1 is another host, where another job's server may listen.
    """
    try:
        return Path(f"{proc}/{pid}/ns/net").readlink() == Path(f"{proc}/self/ns/net").readlink()
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides whether we may trace. `scope` is Yama's ptrace_scope, 0 without Yama."""

    uid: int
    may_trace_all: bool
    scope: int
    contained: bool  # in a container


def own_rights(proc: Path = Path("/proc")) -> Rights:
    """Return the rights of this process."""
    own = status(proc / "self")
    capabilities = int(own.get("CapEff", "0"), 16)
    uid = int(own["Uid"].split()[1]) if "Uid" in own else os.geteuid()
    scope = 0
    with contextlib.suppress(OSError, ValueError):
        scope = int((proc / "sys" / "kernel" / "yama" / "ptrace_scope").read_bytes())
    cgroup = os.fsdecode(content(proc / "self" / "cgroup"))
    contained = bool(_CONTAINER_ID.search(cgroup)) or len(own.get("NSpid", "").split()) > 1
    return Rights(uid, bool(capabilities & _SYS_PTRACE), scope, contained)


def ptrace_remedy(proc: Path = Path("/proc")) -> str:
    """What to do so that ptrace and /proc/PID/mem are allowed, for this user on this machine."""
    rights = own_rights(proc)
    if rights.scope >= 3:
        return (
            f"kernel.yama.ptrace_scope is {rights.scope}: {_SCOPE_MEANINGS[3]}. "
            "Boot with kernel.yama.ptrace_scope=1, then run it as root."
        )
    if rights.may_trace_all:
        return (
            "CAP_SYS_PTRACE is there, so a security module (AppArmor, SELinux, seccomp) or a user "
            "namespace refuses: run it on the host, or with `--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined`."
        )
    advice = []
    if rights.contained:
        advice.append(
            "This container lacks the right to trace: start it with `docker run --cap-add "
            "SYS_PTRACE`, or inspect it from outside, with Kubernetes: `kubectl debug "
            "--profile=sysadmin --target=CONTAINER POD -it --image=IMAGE`."
        )
    if rights.uid != 0:
        advice.append(
            f"Run it as root: `sudo {shlex.quote(sys.executable)} -m grpo_doctor attach`."
        )
        if rights.scope:
            advice.append(
                f"Or, for processes of your own: kernel.yama.ptrace_scope is {rights.scope}, "
                f"{_SCOPE_MEANINGS[rights.scope]}; `sudo sysctl kernel.yama.ptrace_scope=0` "
                f"allows it."
            )
    elif not rights.contained:
        advice.append(
            "This root lacks CAP_SYS_PTRACE: run it from a shell of the host's root, or add "
            "SYS_PTRACE to the capabilities of the service that starts it."
        )
    return " ".join(advice)


def why_refused(pid: int, proc: Path = Path("/proc")) -> str:
    """Return why a trace of this process was refused, as far as known, and what to do."""
    rights, owner = own_rights(proc), status(proc / str(pid)).get("Uid", "").split()[:1]
    if rights.scope or rights.may_trace_all:
        return ptrace_remedy(proc)
    if owner != [str(rights.uid)]:
        return f"it belongs to user {''.join(owner) or 'unknown'}. {ptrace_remedy(proc)}"
    return f"not even its own user may trace it (it is not dumpable). {ptrace_remedy(proc)}"
