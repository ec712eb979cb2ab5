"""What can wait and be waited for: ranks, other processes, and things. Identities of processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from grpo_doctor_probes.evidence import Member

Order: TypeAlias = tuple[int, str, int]
# In joined evidence a process of host k is k times this plus its number there: Linux numbers
# processes below 2**22, and 9,000 hosts stay exact in JavaScript.
HOST_STEP = 10**12


def number_of(pid: int) -> int:
    """Return the number of a process, or of a thread, on its own host."""
    return pid % HOST_STEP


def host_of(pid: int) -> int:
    """Return the number of a process's host; 0 where no evidence was joined."""
    return pid // HOST_STEP


def process_in(members: Iterable[Member], message: str, number: int) -> int:
    """Return the process that a kernel's message names by its number. In joined evidence the
    message ends with the name of its host.
    """
    homes = {member.host: host_of(member.pid) for member in members if member.host}
    home = next((at for name, at in homes.items() if message.endswith(f"(on {name})")), 0)
    return home * HOST_STEP + number_of(number)


@dataclass(frozen=True, slots=True)
class RankNode:
    """A training rank; its main thread stands for it."""

    rank: int

    @property
    def order(self) -> Order:
        """Ranks come first, by their number."""
        return 0, "rank", self.rank


@dataclass(frozen=True, slots=True)
class ProcessNode:
    """Any other process."""

    pid: int

    @property
    def order(self) -> Order:
        """After the ranks, by its number."""
        return 1, "pid", self.pid


@dataclass(frozen=True, slots=True)
class ResourceNode:
    """A file, lock or socket whose other end is no process that was seen."""

    kind: str
    name: str

    @property
    def order(self) -> Order:
        """After the processes, by kind and name."""
        return 2, f"{self.kind}:{self.name}", 0


Node: TypeAlias = RankNode | ProcessNode | ResourceNode


def name_of(node: Node) -> str:
    """A node's name in the document of `attach --json`."""
    return node.order[1] if isinstance(node, ResourceNode) else "{1}:{2}".format(*node.order)
