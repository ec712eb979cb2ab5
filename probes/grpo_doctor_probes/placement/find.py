"""Reads what a launcher has passed to the processes of a job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from grpo_doctor_probes.evidence import Job, Placement
from grpo_doctor_probes.placement.launchers import LauncherFacts, placement
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import read, variables

PROC = Path("/proc")
_NAMESPACE = "root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_MOST_READ = 4  # of ranks, and of launchers: all of a host are told the same
_PATIENCE_S = 0.5  # the lock of a process's memory may be held by a thread that hangs


def placement_of(job: Job, proc: Path = PROC) -> Placement:
    """What the job's processes on this host know of its other hosts; empty where unreadable."""
    ranks = [member.pid for member in job.ranks()][:_MOST_READ]
    launchers = [member.pid for member in job.members if member.role == "launcher"][:_MOST_READ]
    facts = LauncherFacts(
        environment=next(_environments(proc, (*ranks, *launchers)), {}),
        commands=tuple(_commands(proc, launchers)),
        namespace=printable(_bounded(proc / str(ranks[0]) / _NAMESPACE)) if ranks else "",
        addresses=_addresses(proc, ranks[0]) if ranks else (),
    )
    return placement(job, facts)


def _environments(proc: Path, pids: tuple[int, ...]) -> Iterator[dict[str, str]]:
    for pid in pids:
        if content := _bounded(proc / str(pid) / "environ"):
            yield variables(content)


def _commands(proc: Path, pids: list[int]) -> Iterator[tuple[str, ...]]:
    for pid in pids:
        content = _bounded(proc / str(pid) / "cmdline").decode("utf-8", "replace")
        yield tuple(content.rstrip("\0").split("\0"))


def _addresses(proc: Path, pid: int) -> tuple[str, ...]:
    """The IPv4 addresses of its network namespace that others can reach: /proc/PID/net/fib_trie
    has each local address on the line before `/32 host LOCAL`.
    """
    text = _bounded(proc / str(pid) / "net" / "fib_trie").decode("ascii", "replace")
    pairs = pairwise(text.split("\n"))
    local = (before.strip() for before, line in pairs if "/32 host LOCAL" in line)
    addresses = dict.fromkeys(line.removeprefix("|-- ") for line in local)
    return tuple(address for address in addresses if not address.startswith("127."))


def _bounded(path: Path) -> bytes:
    try:
        return within(_PATIENCE_S, lambda: read(path))
    except (OSError, TimeoutError):
        return b""
