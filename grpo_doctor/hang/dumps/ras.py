"""NCCL's RAS, in the JSON of NCCL 2.28.7 and newer: who launched less, who was lost, who reported
errors. Pure.

Counts are of launches, by the processes, not of what the GPUs have done; they are taken at slightly
different moments. So only who has not launched, in the last sample, what the others had launched in
the first, is behind. Where all have launched the same the hang is in the collective itself: that
is not seen here, and no rank is blamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from grpo_doctor_probes.evidence import Job, RasAnswer

# ncclResult_t, as `init_state` and `async_error` have it.
SUCCESS, IN_PROGRESS = 0, 7
ERRORS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}
LEAST_NS = 500_000_000  # between two answers that are compared
_LOOPBACK = ("127.", "::1")


class RasProcess(NamedTuple):
    """A process as RAS names it: the address of its node, its number there; -1 where unknown."""

    host: str
    pid: int


class RankStatus(msgspec.Struct, frozen=True):
    """What NCCL reports of a rank; of one that sent nothing the last two alone.

    `considered_dead`: NCCL has not reached it for a minute and gave it up. `unresponsive`: it did
    not answer this time. Neither: its process answers and does not count itself in.
    """

    init_state: int = SUCCESS
    async_error: int = SUCCESS
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
    def process(self) -> RasProcess:
        """The process that it is in."""
        return RasProcess(self.host, self.pid)

    @property
    def leaves(self) -> bool:
        """Return whether it finalizes, destroys or aborts the communicator."""
        status = self.status
        return status.finalize_called or status.destroy_flag or status.abort_flag


class Communicator(msgspec.Struct, frozen=True):
    """A communicator: `ranks` that sent their counts, and `missing_ranks` that sent nothing."""

    hash: str = ""
    secondary_hash: str = ""
    size: int = 0
    ranks: tuple[CommRank, ...] = ()
    missing_ranks: tuple[CommRank, ...] = ()

    @property
    def key(self) -> str:
        """Its name, the same in each answer."""
        return f"{self.hash}/{self.secondary_hash}"

    @property
    def members(self) -> tuple[CommRank, ...]:
        """All ranks that the answer names, whether they sent anything or not."""
        return (*self.ranks, *self.missing_ranks)


class _Document(msgspec.Struct, frozen=True):
    communicators: tuple[Communicator, ...] = ()


class Mesh(NamedTuple):
    """One answer: all communicators of the processes that know each other."""

    at_ns: int
    communicators: tuple[Communicator, ...]


class RasReport(msgspec.Struct, frozen=True):
    """What the meshes of one job said, oldest first, and the ranks of the processes they name."""

    meshes: tuple[Mesh, ...] = ()
    ranks: dict[RasProcess, int] = {}
    world: frozenset[str] = frozenset()  # keys of communicators over all ranks of the job

    def rank(self, key: str, seat: CommRank) -> int | None:
        """Return the job's rank of a rank of communicator `key`; None where it is not known.

        Torch's default group numbers its communicator as the job does.
        """
        return seat.rank if key in self.world else self.ranks.get(seat.process)


def hear(job: Job, answers: Sequence[RasAnswer]) -> RasReport:
    """Leaves out what can't be read and meshes of other jobs, which use the same port."""
    meshes = [mesh for answer in answers if (mesh := _read(answer)) is not None]
    own = _Own(job, meshes)
    meshes = sorted((mesh for mesh in meshes if own.has(mesh)), key=lambda mesh: mesh.at_ns)
    ranks: dict[RasProcess, int] = {}
    world: set[str] = set()
    for communicator in (item for mesh in meshes for item in mesh.communicators):
        processes = {member.process: member.rank for member in communicator.members}
        if own.is_world(communicator):
            world.add(communicator.key)
            ranks |= processes
        for process in processes.keys() - ranks.keys():
            if (rank := own.rank(process)) is not None:
                ranks[process] = rank
    ranks = {process: rank for process, rank in ranks.items() if process.pid > 0}
    return RasReport(tuple(meshes), ranks, frozenset(world))


def _read(answer: RasAnswer) -> Mesh | None:
    try:
        document = msgspec.json.decode(answer.text, type=_Document, strict=False)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Mesh(answer.at_ns, document.communicators)


class _Own:
    """Distinguish the job's processes from others of the same numbers on other hosts."""

    def __init__(self, job: Job, meshes: Sequence[Mesh]) -> None:
        self._size = job.world_size
        as_large = (
            frozenset(member.process for member in item.members)
            for mesh in meshes
            for item in mesh.communicators
            if item.size == job.world_size
        )
        self._several = len({group for group in as_large if len(group) == job.world_size}) > 1
        # Of several hosts' joined evidence process numbers are no longer the kernel's.
        members = () if any(member.host for member in job.members) else job.members
        self._joined = not members
        self._ranks = {member.pid: member.rank for member in members}
        self._addresses = {a for placement in job.placements for a in placement.addresses}

    def has(self, mesh: Mesh) -> bool:
        """Return whether a process of the job is in it."""
        if self._joined:
            return any(map(self.is_world, mesh.communicators))
        members = (member for item in mesh.communicators for member in item.members)
        return any(m.pid in self._ranks for m in members if self._is_local(m.host))

    def is_world(self, communicator: Communicator) -> bool:
        """Return whether it is that of all ranks, each at its own number."""
        if self._size is None or communicator.size != self._size or not communicator.members:
            return False
        matches = [
            rank == member.rank
            for member in communicator.members
            if (rank := self.rank(member.process)) is not None
        ]
        # An engine over as many GPUs as the trainer has looks like it where no process is known.
        return all(matches) if matches else self._joined and not self._several

    def rank(self, process: RasProcess) -> int | None:
        """The rank of one of this host's processes."""
        return self._ranks.get(process.pid) if self._is_local(process.host) else None

    def _is_local(self, host: str) -> bool:
        local = host.startswith(_LOOPBACK) or host == "unknown"
        return local or not self._addresses or host in self._addresses


class LateRank(msgspec.Struct, frozen=True):
    """A rank that has launched fewer of `operation` than most; or more (`ahead`), and they wait.

    `rank` is None for a process that is no rank of the job as far as is known. `instead`: what it
    has launched more of than most.
    """

    rank: int | None
    process: RasProcess
    operation: str
    launched: int
    others: int
    size: int
    ahead: bool = False
    instead: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A rank that NCCL lost (`dead`, `unresponsive`), or that reported an error (`error`)."""

    rank: int | None
    process: RasProcess
    what: str
    error: int = SUCCESS


class Findings(msgspec.Struct, frozen=True):
    """`even`: every communicator was heard twice, and all its ranks have launched the same."""

    laggards: tuple[LateRank, ...] = ()
    failures: tuple[Failure, ...] = ()
    even: bool = False


def judge_ras(report: RasReport) -> Findings:
    """Return all that two rounds of answers show; one round shows failures alone."""
    pairs = tuple(_pairs(report.meshes))
    laggards = [lag for before, after in pairs for lag in _laggards(report, before, after)]
    return Findings(
        laggards=_bottom([after for _, after in pairs], laggards),
        failures=tuple(dict.fromkeys(_failures(report))),
        even=bool(pairs) and not laggards and not any(after.missing_ranks for _, after in pairs),
    )


def _pairs(meshes: tuple[Mesh, ...]) -> Iterator[tuple[Communicator, Communicator]]:
    """Yield each communicator in its first and its last sample."""
    first: dict[str, tuple[int, Communicator]] = {}
    last: dict[str, tuple[int, Communicator]] = {}
    for mesh in meshes:
        for communicator in mesh.communicators:
            first.setdefault(communicator.key, (mesh.at_ns, communicator))
            last[communicator.key] = (mesh.at_ns, communicator)
    for key, (at_ns, communicator) in sorted(last.items()):
        if at_ns - first[key][0] >= LEAST_NS:
            yield first[key][1], communicator


def _laggards(report: RasReport, before: Communicator, after: Communicator) -> Iterator[LateRank]:
    earlier = {seat.rank: seat.collective_counts for seat in before.ranks}
    for operation in sorted({name for seat in after.ranks for name in seat.collective_counts}):
        usual = _usual(after, operation)
        if usual is None or usual != _usual(before, operation):
            continue  # they make progress
        for seat in after.ranks:
            then, count = earlier.get(seat.rank), seat.collective_counts.get(operation, usual)
            same = then is not None and then.get(operation, usual) == count
            if count == usual or not same or seat.leaves or seat.status.init_state != SUCCESS:
                continue
            yield LateRank(
                report.rank(after.key, seat),
                seat.process,
                operation,
                count,
                usual,
                after.size,
                ahead=count > usual,
                instead=_instead(after, seat, operation) if count < usual else "",
            )


def _usual(communicator: Communicator, operation: str) -> int | None:
    """How many of an operation most ranks have launched; None where a rank is in no list.

    Of two ranks, or two halves, it is the larger count: who has launched less is waited for.
    """
    if communicator.size > len(communicator.members):
        return None
    own = (seat.collective_counts for seat in communicator.ranks)
    counts = Counter(each[operation] for each in own if operation in each)
    largest = max(counts.values(), default=0)
    return max((count for count, ranks in counts.items() if ranks == largest), default=None)


def _instead(communicator: Communicator, seat: CommRank, operation: str) -> str:
    """Another operation of which it has launched more than most."""
    more = (
        name
        for name, count in sorted(seat.collective_counts.items())
        if name != operation and (usual := _usual(communicator, name)) is not None and count > usual
    )
    return next(more, "")


def _bottom(communicators: list[Communicator], laggards: list[LateRank]) -> tuple[LateRank, ...]:
    """Drop those who are behind because they wait for another such rank in another communicator.

    In a ring of communicators no process is left to blame.
    """
    behind = {lag.process for lag in laggards if not lag.ahead}
    waiting: set[RasProcess] = set()
    for communicator in communicators:
        members = {seat.process for seat in communicator.ranks}
        late = {lag.process for lag in laggards if not lag.ahead and _is_in(communicator, lag)}
        if late:
            waiting |= members & behind - late
    chosen = [lag for lag in laggards if lag.ahead or lag.process not in waiting]
    below = [lag for lag in chosen if not lag.ahead]
    return tuple(dict.fromkeys(below if behind else chosen))


def _is_in(communicator: Communicator, lag: LateRank) -> bool:
    """Return whether it is in this communicator that the rank is behind."""
    usual = _usual(communicator, lag.operation)
    return usual is not None and any(
        seat.collective_counts.get(lag.operation, usual) < usual
        for seat in communicator.ranks
        if seat.process == lag.process
    )


def _failures(report: RasReport) -> Iterator[Failure]:
    lost = [
        {(part.key, seat.rank): seat for part in mesh.communicators for seat in part.missing_ranks}
        for mesh in report.meshes
    ]
    for (key, number), seat in lost[-1].items() if lost else ():
        rank = report.rank(key, seat)
        if seat.status.considered_dead:
            yield Failure(rank, seat.process, "dead")
        elif seat.status.unresponsive and sum((key, number) in members for members in lost) > 1:
            yield Failure(rank, seat.process, "unresponsive")
    for communicator in (item for mesh in report.meshes for item in mesh.communicators):
        for seat in communicator.ranks:
            for error in (seat.status.async_error, seat.status.init_state):
                if error not in (SUCCESS, IN_PROGRESS):
                    text = ERRORS.get(error, f"error {error}")
                    yield Failure(report.rank(communicator.key, seat), seat.process, text, error)
