"""Answers of NCCL's RAS as they came, read: whose they are, and which rank of the job is which."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from grpo_doctor.hang.dumps.ras.answers import parse_json, parse_text
from grpo_doctor.hang.dumps.ras.model import Communicator, Mesh, Process
from grpo_doctor_probes.evidence import Job, RasAnswer

_LOOPBACK = ("127.", "::1")


class RasReport(msgspec.Struct, frozen=True):
    """What the meshes of one job said, oldest first, and the ranks of the processes they name."""

    meshes: tuple[Mesh, ...] = ()
    ranks: dict[Process, int] = {}
    world: frozenset[str] = frozenset()  # keys of communicators over all ranks of the job

    def rank(self, key: str, number: int, process: Process) -> int | None:
        """Return the job's rank that is `number` in a communicator; None where it is not known.

        Torch's default group numbers its communicator as the job does.
        """
        return number if key in self.world else self.ranks.get(process)


def hear(job: Job, answers: Sequence[RasAnswer]) -> RasReport:
    """Leaves out what can't be read and meshes of other jobs, which use the same port."""
    meshes = [mesh for answer in answers if (mesh := _read(answer)) is not None]
    own = _Own(job, meshes)
    meshes = sorted((mesh for mesh in meshes if own.has(mesh)), key=lambda mesh: mesh.at_ns)
    ranks: dict[Process, int] = {}
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


def _members(meshes: Sequence[Mesh], size: int | None) -> set[frozenset[Process]]:
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
        """Whether a process of the job is in it."""
        if self._joined:
            return any(self.is_world(communicator) for communicator in mesh.communicators)
        return any(p.pid in self._ranks for p in mesh.processes if self._is_local(p))

    def is_world(self, communicator: Communicator) -> bool:
        """Whether it is that of all ranks, each at its own number."""
        if self._size is None or communicator.size != self._size or not communicator.members:
            return False
        matches = [
            rank == member.number
            for member in communicator.members
            if (rank := self.rank(member.process)) is not None
        ]
        # An engine over as many GPUs as the trainer has looks like it where no process is known.
        return all(matches) if matches else self._joined and not self._several

    def rank(self, process: Process) -> int | None:
        """The rank of one of this host's processes."""
        return self._ranks.get(process.pid) if self._is_local(process) else None

    def _is_local(self, process: Process) -> bool:
        local = process.host.startswith(_LOOPBACK) or process.host == "unknown"
        return local or not self._addresses or process.host in self._addresses
