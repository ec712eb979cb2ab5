"""A closer look at ranks that use a core at one line: do they compute, or wait for their device?"""

from __future__ import annotations

import time
from collections.abc import Callable

from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor_probes import look
from grpo_doctor_probes.evidence import Look

MOST_DIGESTS = 16  # processes; one takes 20 ms of a core
BETWEEN_S = 0.5  # most steps of a training loop come back to a line within that
POSITIONS_S = 1.0
DIGESTS_S = 2.0
_ASKED = ("rank", "engine", "engine-worker")
_AT_ONE_LINE = ("busy", "spinning", "still", "polling")


def look_closer(
    visit: Visit, progress: Callable[[str], None], *, stop: bool, wait_s: float
) -> None:
    """Fills in `positions` and `locals_seen`. `stop`: threads may be stopped for 50 us; `wait_s` is
    how long a host that still seems to spin is given to come back to its line.
    """
    if not _pids(visit, "busy", "spinning") and not _works_beneath(visit):
        return
    progress("sampling ranks that use a core at one line")
    with visit.part("spinning"):
        if stop:
            before, after = (_of_ranks(visit, processes) for processes in visit.looks[-2:])
            visit.positions += look.positions(before, after, at_most_s=POSITIONS_S)
        began = time.monotonic()
        spinning = _pids(visit, "spinning")[:MOST_DIGESTS]
        _digest(visit, spinning)
        for pause_s in (BETWEEN_S, wait_s):
            unresolved = [pid for pid in _pids(visit, "spinning") if pid in spinning]
            if not unresolved:
                return
            time.sleep(max(0.0, pause_s - (time.monotonic() - began)))
            _digest(visit, unresolved)


def _pids(visit: Visit, *kinds: str) -> list[int]:
    """The ranks, and processes of engines, that moved like that."""
    observed = index(visit.evidence())
    chosen = [member.pid for member in visit.job.members if member.role in _ASKED]
    return [pid for pid in chosen if pid in observed and observed[pid].activity.kind in kinds]


def _works_beneath(visit: Visit) -> bool:
    """Whether a rank sleeps while a thread of a library uses a core: NCCL's, or one that works."""
    observed = index(visit.evidence())
    return any(
        observed[member.pid].activity.library_works
        for member in visit.job.members
        if member.role in _ASKED
    )


def _of_ranks(visit: Visit, full: Look) -> Look:
    pids = set(_pids(visit, *_AT_ONE_LINE))
    ranks = tuple(process for process in full.processes if process.pid in pids)
    return Look(full.at_ns, ranks)


def _digest(visit: Visit, pids: list[int]) -> None:
    if pids:
        visit.locals_seen += look.locals_digests(pids, at_most_s=DIGESTS_S)
