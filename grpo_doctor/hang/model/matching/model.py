"""How far each rank got in each process group, who waits for whom, and whom that points at."""

from __future__ import annotations

from typing import Literal

import msgspec

from grpo_doctor.hang.model.matching.ruling import Blame
from grpo_doctor_probes.evidence import Frame

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
    for the default group. `size` is how many there are, where a recording tells: with more than
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
        named = f" ({self.description})" if self.description else ""
        return f"{self.backend} group {self.name}{named}".strip()


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


class Camp(msgspec.Struct, frozen=True):
    """Ranks that came to one collective with one signature."""

    signature: Signature
    ranks: tuple[int, ...]


class Seat(msgspec.Struct, frozen=True):
    """How far one member is. Sequence numbers; None: not known.

    `first` is the oldest still in its ring. `waiting_since_ns` is when its oldest unfinished
    collective of this group was enqueued (unix ns).
    """

    rank: int
    enqueued: int | None = None
    done: int | None = None
    first: int | None = None
    waiting_since_ns: int | None = None
    timed_out: bool = False


class Standing(msgspec.Struct, frozen=True):
    """Where a process group stands. `front` is its oldest collective that is not done everywhere.

    `arrived`, `missing`, `through` (arrived and done) and `unheard` (no recording that tells)
    part the members. `camps` part `arrived` by signature, the one taken as right first.
    `even`: no majority, so either side may be the wrong one. `expected` is the operation that
    earlier rounds had at this point, "" where they do not tell.
    """

    group: Group
    kind: Kind
    seats: tuple[Seat, ...]
    front: int | None = None
    operation: str = ""  # of the front, in words
    arrived: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    through: tuple[int, ...] = ()
    unheard: tuple[int, ...] = ()
    camps: tuple[Camp, ...] = ()
    even: bool = False
    expected: str = ""
    since_ns: int | None = None  # unix: when the first that still waits came
    longest_gap_ns: int | None = None  # between two of its collectives on one member, before now

    def seat(self, rank: int) -> Seat | None:
        """How far one member is."""
        return next((seat for seat in self.seats if seat.rank == rank), None)


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
    frames: tuple[Frame, ...] = ()


class Pair(msgspec.Struct, frozen=True):
    """Sends of `source` to `target` (global ranks) that were not all met, within one group.

    `waiter` is the rank that is blocked in it: it issued the `nth` operation that has no match.
    """

    group: str
    source: int
    target: int
    sent: int
    received: int
    waiter: int
    nth: int
    operation: str
    since_ns: int | None = None


Why = Literal["missing", "mismatch", "queued", "joined", "p2p"]


class Wait(msgspec.Struct, frozen=True):
    """An edge bundle of the wait-for graph: `rank` has `operation` at the head of a stream and
    needs all of `on`.

    Both are global ranks. `why`: `missing` (they have not called it; `on` is empty where nobody
    knows who else is in the group), `mismatch` (they called something else), `queued` (they have
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


class Cycle(msgspec.Struct, frozen=True):
    """Ranks that wait for each other in a ring: each wait needs the rank of the next one."""

    ranks: tuple[int, ...]
    waits: tuple[Wait, ...]
    groups: tuple[str, ...]  # Group.key, as waited for, without repeats


class Rhythm(msgspec.Struct, frozen=True):
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

    def still_for_ns(self) -> int | None:
        """For how long, when recorded, the rank had enqueued nothing."""
        if self.last_enqueued_ns is None or not self.taken_ns:
            return None
        return max(self.taken_ns - self.last_enqueued_ns, 0)


class Backlog(msgspec.Struct, frozen=True):
    """What a rank has called and not seen end, by its entries or its counters.

    `pending` is how many operations; `idle`: none, though its recording tells of some: then it is
    its host that has to go on. `heads` are its waits' groups with the number in each, the oldest
    first; `head` is the oldest in words.
    """

    rank: int
    pending: int = 0
    idle: bool = False
    head: str = ""
    heads: tuple[tuple[str, int], ...] = ()


class Matching(msgspec.Struct, frozen=True):
    """All that can be told from the recordings. The order of dumps never matters.

    `blame` has at most one entry per rank, strongest grounds first; empty when nobody is behind.
    `heard` are the ranks with a usable recording. `moved`: any rank progressed between two dumps;
    None when there are not two. `backlogs` has every rank that is heard.
    """

    standings: tuple[Standing, ...] = ()
    pairs: tuple[Pair, ...] = ()
    shifts: tuple[Shift, ...] = ()
    waits: tuple[Wait, ...] = ()
    cycles: tuple[Cycle, ...] = ()
    rhythms: tuple[Rhythm, ...] = ()
    blame: tuple[Blame, ...] = ()
    heard: tuple[int, ...] = ()
    world_size: int | None = None
    moved: bool | None = None
    taken_unix_ns: int = 0
    notes: tuple[str, ...] = ()
    backlogs: tuple[Backlog, ...] = ()

    def backlog(self, rank: int) -> Backlog | None:
        """What one rank has not finished."""
        return next((one for one in self.backlogs if one.rank == rank), None)

    def standing(self, key: str) -> Standing | None:
        """The standing of the group with this `Group.key`."""
        return next((one for one in self.standings if one.group.key == key), None)

    @property
    def familiar(self) -> bool:
        """Whether the recordings have earlier waits like those of now, against which these can be
        held. That of a rank to blame is unlike any, so it counts only where nobody else waits.
        """
        blamed = {one.rank for one in self.blame}
        told = [one for one in self.rhythms if one.familiar is not None]
        others = [one for one in told if one.rank not in blamed]
        return all(one.familiar for one in others or told)

    def rhythm(self, rank: int) -> Rhythm | None:
        """The pace of one rank."""
        return next((one for one in self.rhythms if one.rank == rank), None)
