"""Processes that only their children give away: the driver of a Ray cluster, an engine's server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.commands import Kind, kind_of
from grpo_doctor_probes.discover.frameworks import framework_by_command
from grpo_doctor_probes.discover.scan import Process

_RAY_CORE = ("raylet", "gcs_server")


def recognise_parents(
    candidates: dict[int, Candidate], processes: Mapping[int, Process], left_out: frozenset[int]
) -> None:
    """Give the Python parents of Ray's daemons and of engine cores their kind, in `candidates`.

    An engine core below a rank works for that rank alone, which stays what it is.
    """
    for process in processes.values():
        parent = processes.get(process.parent)
        if parent is None or not parent.python or parent.pid in left_out:
            continue
        known = candidates.get(parent.pid, Candidate(parent, "unknown", parent.environment))
        kind = _kind_of_parent(process)
        if kind is None or known.kind != "unknown" or _serves(processes.get(parent.parent)):
            continue
        if kind == "ray" or not _may_be_rank(known):
            candidates[parent.pid] = replace(known, kind=kind)


def _kind_of_parent(process: Process) -> Kind | None:
    if process.name in _RAY_CORE:
        return "ray"
    return "server" if kind_of(process.name, process.arguments) == "engine" else None


def _serves(process: Process | None) -> bool:
    return process is not None and kind_of(process.name, process.arguments) == "server"


def _may_be_rank(one: Candidate) -> bool:
    return (
        one.grouped
        or one.rank is not None
        or (one.torch and framework_by_command([one.process]) != "unknown")
        or kind_of(one.process.name, one.process.arguments) not in ("unknown", "ourselves")
    )
