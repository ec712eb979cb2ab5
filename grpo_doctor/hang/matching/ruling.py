"""Blame, and the verdict that recordings alone allow."""

from __future__ import annotations

from typing import Literal

import msgspec

Reason = Literal[
    "not-arrived",  # others wait for it in a collective it has not called
    "other-op",  # called another operation than the rest
    "other-size",
    "other-type",
    "extra",  # issued one collective more than the rest, which shifted all later ones
    "skipped",  # issued one collective fewer
    "fewer-batches",  # left the loop earlier: called what comes after it
    "out-of-order",  # took its groups in another order than the rest
    "not-sent",  # a peer waits to receive from it
    "not-received",  # a peer waits to send to it
    "not-through",  # joined but did not complete, where others did
    "not-recorded",  # a member without a dump
]


class Blame(msgspec.Struct, frozen=True):
    """How much a rank is to blame by the recordings alone, 0..1, and why, in a whole sentence."""

    rank: int
    weight: float
    reason: Reason
    text: str
    group: str = ""
    sequence: int | None = None


class Ruling(msgspec.Struct, frozen=True):
    """What the recordings alone allow to say. `cause` is a class of `hang.catalogue`, "" for none.

    `either`: the culprits are alternatives, not accomplices. `seconds` is for how long, when the
    dumps were taken, nothing had moved; `unusual` whether that is long for this job (None: no
    history to compare with). `facts` are (rank or None, sentence).
    """

    cause: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    either: bool = False
    confidence: float = 0.0
    seconds: float | None = None
    unusual: bool | None = None
    summary: str = ""
    facts: tuple[tuple[int | None, str], ...] = ()
