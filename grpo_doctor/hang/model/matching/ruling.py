"""Blame, and the verdict that recordings alone allow."""

from __future__ import annotations

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

    @property
    def weight(self) -> float:
        """The place of the grounds in `STRENGTH`, from 1 down to a half: an order, no odds."""
        return 1.0 - 0.5 * STRENGTH.index(self.grounds) / (len(STRENGTH) - 1)


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

    @property
    def confidence(self) -> float:
        """An order for where one number is shown; a table over the corpus has the odds."""
        if self.grounds is None:
            return 0.5
        strength = 1.0 - 0.5 * STRENGTH.index(self.grounds) / (len(STRENGTH) - 1)
        return round(strength * (0.95 if self.unusual else 0.85), 2)
