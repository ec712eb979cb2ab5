"""Answers of NCCL's RAS: in JSON, of NCCL 2.28.7 and newer, or in text, all that 2.24 to 2.28.3
give (torch 2.7 to 2.10 come with 2.26 and 2.27). A text is made for people: what is as usual is
left out, and of two halves that differ neither is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

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


class RasProcess(msgspec.Struct, frozen=True):
    """A process of the mesh as RAS names it: the address of its node, its number there.

    `pid` is -1 where RAS itself does not know.
    """

    host: str
    pid: int


class CommRank(msgspec.Struct, frozen=True):
    """One rank of a communicator. `number` counts within the communicator.

    `counts` are the collectives that its process has launched, by operation; those of an answer in
    text name only operations in which ranks differ. `leaves`: it finalizes, destroys or aborts.
    """

    number: int
    process: RasProcess
    counts: dict[str, int] = {}
    init_state: int = SUCCESS
    async_error: int = SUCCESS
    leaves: bool = False


class Lost(msgspec.Struct, frozen=True):
    """A rank of a communicator that sent nothing.

    `dead`: NCCL has not reached it for a minute and gave it up. `unresponsive`: it did not answer
    this time. Neither: its process answers and does not count itself in.
    """

    number: int
    process: RasProcess
    unresponsive: bool = False
    dead: bool = False


class Communicator(msgspec.Struct, frozen=True):
    """One communicator. In an answer in text `seats` are the few that differ from the rest.

    `usual` are the counts of every rank that is neither in `seats` nor in `lost`; None where there
    is no telling.
    """

    key: str
    size: int
    seats: tuple[CommRank, ...] = ()
    lost: tuple[Lost, ...] = ()
    usual: dict[str, int] | None = None

    @property
    def members(self) -> tuple[CommRank | Lost, ...]:
        """All ranks that the answer names, whether they sent anything or not."""
        return (*self.seats, *self.lost)


class Mesh(msgspec.Struct, frozen=True):
    """One answer: all communicators of the processes that know each other.

    `dead_processes` are those that RAS considers dead, whatever communicator they were in.
    """

    at_ns: int
    version: str
    communicators: tuple[Communicator, ...] = ()
    dead_processes: tuple[RasProcess, ...] = ()

    @property
    def processes(self) -> frozenset[RasProcess]:
        """All that the answer names."""
        members = (member for item in self.communicators for member in item.members)
        return frozenset((*(member.process for member in members), *self.dead_processes))


_LOOPBACK = ("127.", "::1")


class RasReport(msgspec.Struct, frozen=True):
    """What the meshes of one job said, oldest first, and the ranks of the processes they name."""

    meshes: tuple[Mesh, ...] = ()
    ranks: dict[RasProcess, int] = {}
    world: frozenset[str] = frozenset()  # keys of communicators over all ranks of the job

    def rank(self, key: str, number: int, process: RasProcess) -> int | None:
        """Return the job's rank that is `number` in a communicator; None where it is not known.

        Torch's default group numbers its communicator as the job does.
        """
        return number if key in self.world else self.ranks.get(process)


def hear(job: Job, answers: Sequence[RasAnswer]) -> RasReport:
    """Leaves out what can't be read and meshes of other jobs, which use the same port."""
    meshes = [mesh for answer in answers if (mesh := _read(answer)) is not None]
    own = _Own(job, meshes)
    meshes = sorted((mesh for mesh in meshes if own.has(mesh)), key=lambda mesh: mesh.at_ns)
    ranks: dict[RasProcess, int] = {}
    world: set[str] = set()
    for mesh in meshes:
        for communicator in mesh.communicators:
            if own.is_world(communicator):
                world.add(communicator.key)
                ranks |= {member.process: member.number for member in communicator.members}
        for process in mesh.processes - ranks.keys():
            if (rank := own.rank(process)) is not None:
                ranks[process] = rank
    ranks = {process: rank for process, rank in ranks.items() if process.pid > 0}
    return RasReport(tuple(meshes), ranks, frozenset(world))


def _read(answer: RasAnswer) -> Mesh | None:
    parse = parse_json if answer.text.lstrip().startswith("{") else parse_text
    try:
        return parse(answer.text, answer.at_ns)
    except ValueError:
        return None


def _members(meshes: Sequence[Mesh], size: int | None) -> set[frozenset[RasProcess]]:
    """The processes of each communicator of this size; answers in text name only some of them."""
    of_size = (item for mesh in meshes for item in mesh.communicators if item.size == size)
    groups = (frozenset(member.process for member in item.members) for item in of_size)
    return {processes for processes in groups if len(processes) == size}


class _Own:
    """Distinguish the job's processes from others of the same numbers on other hosts."""

    def __init__(self, job: Job, meshes: Sequence[Mesh]) -> None:
        self._size = job.world_size
        self._several = len(_members(meshes, job.world_size)) > 1
        # Of several hosts' joined evidence process numbers are no longer the kernel's.
        members = () if any(member.host for member in job.members) else job.members
        self._joined = not members
        self._ranks = {member.pid: member.rank for member in members}
        self._addresses = {a for placement in job.placements for a in placement.addresses}

    def has(self, mesh: Mesh) -> bool:
        """Return whether a process of the job is in it."""
        if self._joined:
            return any(self.is_world(communicator) for communicator in mesh.communicators)
        return any(p.pid in self._ranks for p in mesh.processes if self._is_local(p))

    def is_world(self, communicator: Communicator) -> bool:
        """Return whether it is that of all ranks, each at its own number."""
        if self._size is None or communicator.size != self._size or not communicator.members:
            return False
        matches = [
            rank == member.number
            for member in communicator.members
            if (rank := self.rank(member.process)) is not None
        ]
        # An engine over as many GPUs as the trainer has looks like it where no process is known.
        return all(matches) if matches else self._joined and not self._several

    def rank(self, process: RasProcess) -> int | None:
        """The rank of one of this host's processes."""
        return self._ranks.get(process.pid) if self._is_local(process) else None

    def _is_local(self, process: RasProcess) -> bool:
        local = process.host.startswith(_LOOPBACK) or process.host == "unknown"
        return local or not self._addresses or process.host in self._addresses


_LEAVING = ("finalize_called", "destroy_flag", "abort_flag")
_VERSION = re.compile(r"NCCL version (\S+)")
# group, communicators, nodes and ranks per node ("7-8" where they differ), ranks of each, of all
_ROW = re.compile(r"\s*(\d+)\s+\d+\s+[\d-]+\s+[\d-]+\s+(\d+)\s+\d+\s+\w+\s+[A-Z,]+\s*")
_TITLE = re.compile(r"#(\d+)-\d+ \(([0-9a-f]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_DIFFERENT = re.compile(r"\s+Communicator ranks have different (\S+ )?(?:collective )?operation co")
_OTHERWISE = re.compile(r"\s+Communicator ranks have different status")
_MANY = re.compile(r"\s+(\d+) ranks have (?:launched up to operation (\d+)|not launched any)")
_ONE = re.compile(r"\s+Rank (\d+) has (?:launched up to operation (\d+)|not launched any)")
_MEMBER = re.compile(r"\s+Rank (\d+) ")
_PROCESS = re.compile(r"[Pp]rocess (\d+) on node (\S+)")
_MISSING = re.compile(r"\s+The missing ranks?: ([\d,]+)")  # until 2.25 by number alone
_KIND = re.compile(r"\s+(Initialization|Asynchronous) error")
_REPORTED = re.compile(r"\s+(?:(\d+) ranks|Rank (\d+)) reported (.+?)(?: -- .*)?")
_ANY_OPERATION = "collective"  # until 2.25 all operations are counted together
_CODES = {text: number for number, text in ERRORS.items()}
_UNEXPECTED = 3  # an error that has no name here: NCCL's own
_UNKNOWN = RasProcess("unknown", -1)


def parse_json(text: str, at_ns: int) -> Mesh:
    """Raises ValueError where it is not such a document."""
    try:
        document = msgspec.json.decode(text)
        return Mesh(
            at_ns,
            str(document.get("nccl_version", "")),
            tuple(_communicator(item) for item in document.get("communicators", ())),
        )
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"not an answer of NCCL's RAS: {problem!r}") from problem


def _communicator(item: dict[str, Any]) -> Communicator:
    seats = tuple(map(_seat, item.get("ranks", ())))
    lost = tuple(map(_lost, item.get("missing_ranks", ())))
    key = f"{item.get('hash', '')}/{item.get('secondary_hash', '')}"
    return Communicator(key, int(item.get("size", len(seats) + len(lost))), seats, lost)


def _process(item: dict[str, Any]) -> RasProcess:
    return RasProcess(str(item.get("host", "unknown")), int(item.get("pid", -1)))


def _seat(item: dict[str, Any]) -> CommRank:
    status = item.get("status", {})
    counts = item.get("collective_counts", {})
    return CommRank(
        int(item["rank"]),
        _process(item),
        {str(name): int(count) for name, count in counts.items()},
        int(status.get("init_state", 0)),
        int(status.get("async_error", 0)),
        any(bool(status.get(flag)) for flag in _LEAVING),
    )


def _lost(item: dict[str, Any]) -> Lost:
    status = item.get("status", {})
    return Lost(
        int(item["rank"]),
        _process(item),
        bool(status.get("unresponsive")),
        bool(status.get("considered_dead")),
    )


@dataclass
class _Draft:
    """A communicator while its lines are read."""

    size: int
    processes: dict[int, RasProcess] = field(default_factory=dict)
    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)
    init: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    telling: bool = True

    def communicator(
        self, key: str, dead: frozenset[RasProcess], silent: frozenset[RasProcess]
    ) -> Communicator:
        numbers = sorted((self.counts.keys() | self.init.keys() | self.failed.keys()) - self.lost)
        lost = tuple(self._lost(number, dead, silent) for number in sorted(self.lost))
        seats = tuple(map(self._seat, numbers))
        return Communicator(key, self.size, seats, lost, self.usual if self.telling else None)

    def _seat(self, number: int) -> CommRank:
        return CommRank(
            number,
            self.processes.get(number, _UNKNOWN),
            {**self.usual, **self.counts.get(number, {})},
            self.init.get(number, SUCCESS),
            self.failed.get(number, SUCCESS),
        )

    def _lost(
        self, number: int, dead: frozenset[RasProcess], silent: frozenset[RasProcess]
    ) -> Lost:
        process = self.processes.get(number, _UNKNOWN)
        return Lost(number, process, process in silent or process in dead, process in dead)


class _Reader:
    """Reads line by line; what a line means depends on the heading that it stands under."""

    def __init__(self) -> None:
        self.version = ""
        self.drafts: dict[str, _Draft] = {}
        self.dead: set[RasProcess] = set()
        self.silent: set[RasProcess] = set()
        self._sizes: dict[int, int] = {}
        self._section = ""
        self._draft: _Draft | None = None
        self._operation, self._count, self._error = "", -1, SUCCESS
        self._kind = "Asynchronous"

    def read(self, line: str) -> None:
        if match := _VERSION.search(line):
            self.version = match[1]
        elif match := _ROW.fullmatch(line):
            self._sizes[int(match[1])] = int(match[2])
        elif match := _TITLE.match(line):
            self._section = match[3]
            self._draft = self.drafts.setdefault(
                match[2], _Draft(self._sizes.get(int(match[1]), 0))
            )
            self._operation, self._count = "", -1
        elif line.strip() in ("INCOMPLETE", "DEAD"):
            self._section, self._draft = line.strip(), None
        elif self._draft is None:
            self._about_processes(line)
        elif self._section == "MISMATCH":
            self._mismatch(self._draft, line)
        elif self._section == "ERROR":
            self._failure(self._draft, line)
        else:
            self._incomplete(self._draft, line)

    def _about_processes(self, line: str) -> None:
        if match := _PROCESS.search(line):
            process = RasProcess(match[2], int(match[1]))
            (self.dead if self._section == "DEAD" else self.silent).add(process)

    def _incomplete(self, draft: _Draft, line: str) -> None:
        if match := _MISSING.fullmatch(line):
            draft.lost |= {int(number) for number in match[1].split(",")}
        elif match := _MEMBER.match(line):
            draft.lost.add(self._seated(draft, match[1], line))

    def _mismatch(self, draft: _Draft, line: str) -> None:
        if match := _DIFFERENT.match(line):
            self._operation = (match[1] or _ANY_OPERATION).strip()
        elif _OTHERWISE.match(line):
            self._operation = ""
        elif not self._operation:
            return
        elif match := _MANY.match(line):
            self._count = int(match[2] or 0)
            if self._operation not in draft.usual:
                draft.usual[self._operation] = self._count  # the largest group comes first
            elif 2 * int(match[1]) >= draft.size:
                draft.telling = False  # two halves, and neither is named
        elif match := _ONE.match(line):
            number = self._seated(draft, match[1], line)
            draft.counts.setdefault(number, {})[self._operation] = int(match[2] or 0)
        elif match := _MEMBER.match(line):
            number = self._seated(draft, match[1], line)
            draft.counts.setdefault(number, {})[self._operation] = self._count

    def _failure(self, draft: _Draft, line: str) -> None:
        if match := _KIND.match(line):
            self._kind = match[1]
        elif match := _REPORTED.fullmatch(line):
            self._error = _CODES.get(match[3].strip(), _UNEXPECTED)
            if match[2] is not None:
                self._failed(draft, match[2], line)
        elif match := _MEMBER.match(line):
            self._failed(draft, match[1], line)

    def _failed(self, draft: _Draft, number: str, line: str) -> None:
        errors = draft.init if self._kind == "Initialization" else draft.failed
        errors[self._seated(draft, number, line)] = self._error

    def _seated(self, draft: _Draft, number: str, line: str) -> int:
        if match := _PROCESS.search(line):
            draft.processes[int(number)] = RasProcess(match[2], int(match[1]))
        return int(number)


def parse_text(text: str, at_ns: int) -> Mesh:
    """Raises ValueError where it is not such an answer."""
    reader = _Reader()
    for line in text.split("\n"):
        reader.read(line.rstrip())
    if not reader.version:
        raise ValueError("not an answer of NCCL's RAS: no version of NCCL in it")
    dead, silent = frozenset(reader.dead), frozenset(reader.silent)
    drafts = reader.drafts.items()
    return Mesh(
        at_ns,
        reader.version,
        tuple(draft.communicator(key, dead, silent) for key, draft in drafts),
        tuple(sorted(dead, key=lambda process: (process.host, process.pid))),
    )
