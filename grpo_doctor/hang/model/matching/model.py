"""How far each rank got in each process group, who waits for whom, and whom that points at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

Kind = Literal[
    "fine",  # nothing outstanding, or what is outstanding is already moving
    "missing",  # some members have not come to the front collective
    "mismatch",  # members came with different operations, sizes or types
    "partial",  # done on some members, unfinished on others, who all came
    "all-joined-none-done",  # all came and agree, nobody is through: network, GPU, other group
    "unknown",  # recordings do not reach far enough to say
]


class Group(msgspec.Struct, frozen=True):
    """A process group. `members` are global ranks in group order.

    `inferred`: the recordings did not list the members; they are those that used it, or the world
    for the default group. `size` is how many there are, where a recording has it: with more than
    `members`, some are not known. `key` is unique and does not depend on the order of files.
    """

    key: str
    name: str
    description: str
    backend: str
    members: tuple[int, ...]
    inferred: bool = False
    size: int | None = None

    def title(self) -> str:
        """In words: `gloo group 3 (pairs)`."""
        description = f" ({self.description})" if self.description else ""
        return f"{self.backend} group {self.name}{description}".strip()


class Signature(msgspec.Struct, frozen=True):
    """What must be equal on all members of a collective, and the line that called it.

    `sizes` and `dtypes` are empty where they may differ between ranks. `site` is `file:line in
    function`, empty without frames; it may differ and is not compared.
    """

    op: str
    sizes: str = ""
    dtypes: str = ""
    site: str = ""

    def text(self) -> str:
        """In words: `all_reduce of [4096] Float`."""
        shape = f" of {self.sizes}" if self.sizes else ""
        return f"{self.op}{shape}{' ' + self.dtypes if self.dtypes else ''}"


class Side(msgspec.Struct, frozen=True):
    """Ranks that came to one collective with one signature."""

    signature: Signature
    ranks: tuple[int, ...]


class GroupStatus(msgspec.Struct, frozen=True):
    """Where a process group stands with its oldest collective that is not done everywhere.

    `operation` is that one in words. `arrived` called it, `missing` have a recording and did not.
    `sides` part `arrived` by signature, the one taken as right first. `timed_out`: the watchdog of
    a member gave up on it.
    """

    group: Group
    kind: Kind
    operation: str = ""
    arrived: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    sides: tuple[Side, ...] = ()
    timed_out: bool = False


class Shift(msgspec.Struct, frozen=True):
    """A rank whose collectives of a group are those of the others, but for a few more or fewer.

    `first` is the sequence number where it leaves the others' order; `operation` and `site` are of
    the collectives it issued too many (`extra`) or left out (`skipped`), `count` of them.
    """

    kind: Literal["extra", "skipped"]
    group: str  # Group.key
    rank: int
    first: int
    count: int
    operation: str
    site: str = ""


Why = Literal["missing", "mismatch", "queued", "joined", "p2p"]


class Wait(msgspec.Struct, frozen=True):
    """An edge bundle of the wait-for graph: `rank` has `operation` at the head of a stream and
    needs all of `on`.

    Both are global ranks. `why`: `missing` (they have not called it; `on` is empty where it is not
    known who else is in the group), `mismatch` (they called something else), `queued` (they have
    called it, behind an unfinished operation of their own), `joined` (they came too, or are
    through), `p2p` (they have not come to their end of the transfer).
    """

    rank: int
    group: str
    sequence: int
    operation: str
    on: tuple[int, ...]
    why: Why
    since_ns: int | None = None
    site: str = ""


class Pace(msgspec.Struct, frozen=True):
    """How a rank usually paces its operations, all groups together; the history that says whether a
    wait is unusual. Gaps are between consecutive enqueues, the present wait not among them.

    `waiting_since_ns` is the enqueue time of its oldest unfinished operation, None when everything
    is done: then it is outside collectives since `last_enqueued_ns` or a little later. `familiar`:
    whether the recording has an earlier wait like that one, None without one.
    """

    rank: int
    entries: int = 0
    last_enqueued_ns: int | None = None
    waiting_since_ns: int | None = None
    taken_ns: int = 0  # unix: when the recording was taken
    longest_gap_ns: int | None = None
    familiar: bool | None = None


Reason = Literal[
    "device-hung",  # its GPU does not end, or does not come to, what its peers ended or began
    "not-arrived",  # nothing of its own is unfinished, and others wait for it in a collective
    "other-op",  # called another operation than the rest
    "other-size",
    "other-type",
    "extra",  # issued one collective more than the rest, which shifted all later ones
    "skipped",  # issued one collective fewer
    "fewer-batches",  # left the loop earlier: called what comes after it
    "out-of-order",  # took its groups in another order than the rest
    "not-sent",  # a peer waits to receive from it
    "not-received",  # a peer waits to send to it
    "not-recorded",  # a member without a dump
]
# They fit at no moment with what the others called, however short the wait.
CLASHES: frozenset[Reason] = frozenset({"other-op", "other-size", "other-type"})
Grounds = Literal[
    "shown",  # the recordings hold the deed itself
    "outnumbered",  # it did otherwise than most
    "awaited",  # the others wait for it, and it waits for nobody
    "unlike-before",  # it did otherwise than in earlier rounds
    "unrecorded",  # it left no dump, and nobody else explains the wait
    "either",  # as likely as the other side
]
STRENGTH: tuple[Grounds, ...] = get_args(Grounds)  # the strongest first


class Blame(msgspec.Struct, frozen=True):
    """That a rank is to blame by the recordings alone, on what grounds, and why, in a whole
    sentence.
    """

    rank: int
    grounds: Grounds
    reason: Reason
    text: str
    group: str = ""
    sequence: int | None = None


def strongest(blames: Iterable[Blame]) -> tuple[Blame, ...]:
    """Those on the strongest grounds, in their order."""
    all_blames = tuple(blames)
    best = min((STRENGTH.index(blame.grounds) for blame in all_blames), default=0)
    return tuple(blame for blame in all_blames if STRENGTH.index(blame.grounds) == best)


class Matching(msgspec.Struct, frozen=True):
    """All that the recordings show. The order of dumps never matters.

    `blame` has at most one entry per rank, strongest grounds first; empty when no rank is behind.
    `cycles` are rings of waits: each needs the rank of the next one. `heard` are the ranks with a
    usable recording; `idle` those of them that have seen all that they called end: their hosts have
    to continue.
    """

    statuses: tuple[GroupStatus, ...] = ()
    shifts: tuple[Shift, ...] = ()
    waits: tuple[Wait, ...] = ()
    cycles: tuple[tuple[Wait, ...], ...] = ()
    paces: tuple[Pace, ...] = ()
    blame: tuple[Blame, ...] = ()
    heard: tuple[int, ...] = ()
    world_size: int | None = None
    idle: frozenset[int] = frozenset()

    def status(self, key: str) -> GroupStatus | None:
        """The standing of the group with this `Group.key`."""
        return next((status for status in self.statuses if status.group.key == key), None)

    @property
    def familiar(self) -> bool:
        """Return whether the recordings have earlier waits with which to compare those of now.
        That of a rank to blame is unlike any, so it counts only where no other rank waits.
        """
        blamed = {blame.rank for blame in self.blame}
        judged = [pace for pace in self.paces if pace.familiar is not None]
        innocent = [pace for pace in judged if pace.rank not in blamed]
        return all(pace.familiar for pace in innocent or judged)

    def pace(self, rank: int) -> Pace | None:
        """The pace of one rank."""
        return next((pace for pace in self.paces if pace.rank == rank), None)
