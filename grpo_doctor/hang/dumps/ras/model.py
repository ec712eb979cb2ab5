"""What NCCL's RAS reported, in any of its versions."""

from __future__ import annotations

import msgspec

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


class Process(msgspec.Struct, frozen=True):
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
    process: Process
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
    process: Process
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
    dead_processes: tuple[Process, ...] = ()

    @property
    def processes(self) -> frozenset[Process]:
        """All that the answer names."""
        members = (member for item in self.communicators for member in item.members)
        return frozenset((*(member.process for member in members), *self.dead_processes))
