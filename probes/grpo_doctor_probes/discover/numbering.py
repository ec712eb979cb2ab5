"""The numbers of ranks that do not say them: dead ones, and those started without RANK. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo_doctor_probes.discover.scan import Process


@dataclass(frozen=True, slots=True)
class Numbering:
    """Ranks by pid, and what had to be guessed, in words."""

    ranks: Mapping[int, int | None]
    notes: tuple[str, ...] = ()


def number_all(
    ranks: Mapping[int, int | None], processes: Mapping[int, Process], expected: Sequence[int]
) -> Numbering:
    """Give numbers to the ranks that have none, where only one order is possible or likely.

    Args:
        ranks: The number of each rank process, None where it is not known. Zombies included.
        processes: Of the host.
        expected: The ranks that this host should have; empty where unknown.
    """
    unknown = sorted(
        (pid for pid, rank in ranks.items() if rank is None),
        key=lambda pid: (processes[pid].started_ticks, pid),
    )
    if not unknown:
        return Numbering(dict(ranks))
    if len(unknown) == len(ranks):
        return _in_order(unknown, processes)
    known = {rank for rank in ranks.values() if rank is not None}
    free = [rank for rank in expected if rank not in known]
    if len(free) == len(unknown):
        named = dict(ranks) | dict(zip(unknown, free))
        return Numbering(named, (_note(unknown, named, "no other is free"),))
    named = dict(ranks)
    for pid in unknown:
        named[pid] = _between(pid, ranks, processes, free)
    return Numbering(named, (_note(unknown, named, "it was started between its neighbours"),))


def _in_order(pids: Sequence[int], processes: Mapping[int, Process]) -> Numbering:
    if len({processes[pid].parent for pid in pids}) > 1:
        return Numbering(dict.fromkeys(pids), ("No process says which rank it is.",))
    note = "No process says which rank it is: they are numbered in the order of their start."
    return Numbering(dict(zip(pids, range(len(pids)))), (note,))


def _between(
    pid: int,
    ranks: Mapping[int, int | None],
    processes: Mapping[int, Process],
    free: Sequence[int],
) -> int | None:
    """The one free number between those of its neighbours: launchers start ranks in order."""

    def start(one: int) -> tuple[int, int]:
        return processes[one].started_ticks, one

    family = [one for one in ranks if processes[one].parent == processes[pid].parent]
    before = [ranks[one] for one in family if start(one) < start(pid)]
    after = [ranks[one] for one in family if start(one) > start(pid)]
    if None in before or None in after:
        return None
    lowest = max((rank for rank in before if rank is not None), default=-1)
    highest = min((rank for rank in after if rank is not None), default=1 << 30)
    possible = [rank for rank in free if lowest < rank < highest]
    return possible[0] if len(possible) == 1 else None


def _note(pids: Sequence[int], named: Mapping[int, int | None], why: str) -> str:
    told = [f"process {pid} is rank {named[pid]}" for pid in pids if named[pid] is not None]
    lost = [f"process {pid} is a rank of unknown number" for pid in pids if named[pid] is None]
    return "; ".join([f"{text} ({why})" for text in told] + lost) + "."
