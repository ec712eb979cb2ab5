"""NCCL's RAS, in the JSON of NCCL 2.28.7 and newer: ranks on hosts that were not looked at. Pure.

Counts are of launches, by the processes, not of what the GPUs have done; they are taken at slightly
different moments. So only who has not launched, in the last sample, what the others had launched in
the first, is behind. What a rank of this host does, its process shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from grpo_doctor_probes.evidence import Job, RasAnswer

LEAST_NS = 500_000_000  # between two answers that are compared
_LOOPBACK = ("127.", "::1", "unknown")


class RankStatus(msgspec.Struct, frozen=True):
    """What NCCL reports of a rank. `considered_dead`: NCCL has not reached it for a minute and gave
    it up. `unresponsive`: it did not answer this time.
    """

    init_state: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class CommRank(msgspec.Struct, frozen=True):
    """A rank of a communicator, by its number in it, and the collectives that it has launched."""

    rank: int
    host: str = "unknown"
    pid: int = -1
    status: RankStatus = RankStatus()
    collective_counts: dict[str, int] = {}

    @property
    def process(self) -> tuple[str, int]:
        """The address of its node and its number there."""
        return self.host, self.pid

    @property
    def works(self) -> bool:
        """Return whether it neither joins nor leaves the communicator."""
        status = self.status
        leaves = status.finalize_called or status.destroy_flag or status.abort_flag
        return not leaves and status.init_state == 0


class Communicator(msgspec.Struct, frozen=True):
    """A communicator: `ranks` that sent their counts, and `missing_ranks` that sent nothing."""

    hash: str = ""
    secondary_hash: str = ""
    size: int = 0
    ranks: tuple[CommRank, ...] = ()
    missing_ranks: tuple[CommRank, ...] = ()

    @property
    def members(self) -> tuple[CommRank, ...]:
        """All ranks that the answer names, whether they sent anything or not."""
        return (*self.ranks, *self.missing_ranks)

    def usual(self, operation: str) -> int | None:
        """How many of an operation most ranks have launched; None where a rank is in no list.

        Of two ranks, or two halves, it is the larger count: who has launched less is waited for.
        """
        if self.size > len(self.members):
            return None
        own = (seat.collective_counts for seat in self.ranks)
        counts = Counter(each[operation] for each in own if operation in each)
        largest = max(counts.values(), default=0)
        return max((count for count, ranks in counts.items() if ranks == largest), default=None)


class _Document(msgspec.Struct, frozen=True):
    communicators: tuple[Communicator, ...] = ()


class Late(NamedTuple):
    """A process that has launched fewer of `operation` than most; `where` is its communicator."""

    process: tuple[str, int]
    operation: str
    launched: int
    others: int
    where: Communicator


class RasReport(NamedTuple):
    """The job's processes by rank, those that are behind, and those that NCCL lost (`dead`)."""

    processes: dict[int, tuple[str, int]]
    late: dict[int, list[Late]]
    lost: dict[int, bool]


@lru_cache(maxsize=2)
def hear(job: Job, answers: tuple[RasAnswer, ...]) -> RasReport:
    """What the answers on this job show; other jobs, which use the same port, are left out."""
    first: dict[tuple[str, str], tuple[int, Communicator]] = {}
    last: dict[tuple[str, str], tuple[int, Communicator]] = {}
    for answer in sorted(answers, key=lambda answer: answer.at_ns):
        try:
            document = msgspec.json.decode(answer.text, type=_Document, strict=False)
        except (msgspec.DecodeError, RecursionError):
            continue
        if any(_is_world(job, communicator) for communicator in document.communicators):
            for communicator in document.communicators:
                key = communicator.hash, communicator.secondary_hash
                first.setdefault(key, (answer.at_ns, communicator))
                last[key] = answer.at_ns, communicator
    world = [communicator for _, communicator in last.values() if _is_world(job, communicator)]
    ranks = {member.process: member.rank for part in world for member in part.members}
    pairs = [
        (first[key][1], last[key][1])
        for key in sorted(last)
        if last[key][0] - first[key][0] >= LEAST_NS
    ]
    report = RasReport({rank: process for process, rank in ranks.items() if process[1] > 0}, {}, {})
    for entry in _bottom([late for pair in pairs for late in _behind(*pair)]):
        if entry.process in ranks:
            report.late.setdefault(ranks[entry.process], []).append(entry)
    for before, after in pairs:
        silent = {seat.process for seat in before.missing_ranks if seat.status.unresponsive}
        for seat in after.missing_ranks:
            dead, rank = seat.status.considered_dead, ranks.get(seat.process)
            if rank is not None and (dead or seat.process in silent):
                report.lost[rank] = dead
    return report


def _is_world(job: Job, communicator: Communicator) -> bool:
    own = {member.pid: member.rank for member in job.members if not member.host}
    addresses = {address for placement in job.placements for address in placement.addresses}
    local = [
        own.get(member.pid) == member.rank
        for member in communicator.members
        if member.pid in own
        and (not addresses or member.host in addresses or member.host.startswith(_LOOPBACK))
    ]
    return communicator.size == job.world_size and bool(local) and all(local)


def _behind(before: Communicator, after: Communicator) -> Iterator[Late]:
    earlier = {seat.rank: seat.collective_counts for seat in before.ranks}
    for operation in sorted({name for seat in after.ranks for name in seat.collective_counts}):
        usual = after.usual(operation)
        if usual is None or usual != before.usual(operation):
            continue  # they make progress
        for seat in after.ranks:
            count = seat.collective_counts.get(operation, usual)
            same = earlier.get(seat.rank, {}).get(operation, usual) == count
            if count < usual and same and seat.works:
                yield Late(seat.process, operation, count, usual, after)


def _bottom(late: list[Late]) -> Iterator[Late]:
    """Drop those who are behind because they wait for another such rank in another communicator.

    In a ring of communicators no process is left to blame.
    """
    behind = {entry.process for entry in late}
    waiting: set[tuple[str, int]] = set()
    for where in {id(entry.where): entry.where for entry in late}.values():
        own = {entry.process for entry in late if entry.where is where}
        waiting |= {seat.process for seat in where.ranks} & behind - own
    yield from (entry for entry in late if entry.process not in waiting)
