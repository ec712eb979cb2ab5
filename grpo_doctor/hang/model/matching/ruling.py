"""Blame, and the verdict that recordings alone allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

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
Grounds = Literal[
    "shown",  # the recordings hold the deed itself
    "outnumbered",  # it did otherwise than most
    "awaited",  # the others wait for it, and it waits for nobody
    "unlike-before",  # it did otherwise than in earlier rounds
    "unrecorded",  # it left no dump, and nobody else explains the wait
    "either",  # as likely as the other side
]
STRENGTH: tuple[Grounds, ...] = (
    "shown",
    "outnumbered",
    "awaited",
    "unlike-before",
    "unrecorded",
    "either",
)


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
    found = tuple(blames)
    best = min((STRENGTH.index(one.grounds) for one in found), default=0)
    return tuple(one for one in found if STRENGTH.index(one.grounds) == best)


class Ruling(msgspec.Struct, frozen=True):
    """What the recordings alone allow to say. `cause` is a class of `hang.catalogue`, "" for none.

    `either`: the culprits are alternatives, not accomplices. `grounds` are the strongest of theirs,
    None without one. `seconds` is for how long, when the dumps were taken, nothing had moved;
    `unusual` whether that is long for this job (None: no history to compare with). `facts` are
    (rank or None, sentence).
    """

    cause: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    either: bool = False
    grounds: Grounds | None = None
    seconds: float | None = None
    unusual: bool | None = None
    summary: str = ""
    facts: tuple[tuple[int | None, str], ...] = ()
