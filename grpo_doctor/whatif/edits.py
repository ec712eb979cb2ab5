"""Changes to a step model.

A part of a step is named by a phase, which means all of its spans, or by one span, such as
`sync/gather`. `Edit`, `Add` and `AsOthers` change work where it lies, so they follow each other in
any order but that of their list; `Hide` and `Overlap` change what waits for what, and so look at
the steps that all others have left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Edit:
    """Multiplies the work of `phases` on `ranks` (None: all) by `factor`; 0 removes it."""

    phases: tuple[str, ...]
    factor: float
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Adds `seconds` of work per step to `phase` on `ranks`; negative ones take it away.

    Work is never less than none. What a step did not have is put at its beginning.
    """

    phase: str
    seconds: float
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AsOthers:
    """Brings the work of `phases` on one rank down to the median of the other ranks, each step."""

    phases: tuple[str, ...]
    rank: int


@dataclass(frozen=True, slots=True)
class Hide:
    """Takes `phase` off the ranks' way: `workers` helpers do it during the rest of the step.

    `effort_s` is what one step needs of it on the slowest rank. What does not fit into the rest is
    still waited for: max(0, effort_s / workers - rest), with buffers between steps, so on average
    over steps. A step is not shorter than what its host computes for it: `computed_s` with all
    its `cores`, less what other changes took off the ranks.
    """

    phase: str
    effort_s: float
    workers: int
    computed_s: float = 0.0
    cores: float = float("inf")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Runs two sides of a step at once: it takes as long as the longer one, and the rest."""

    first: tuple[str, ...]
    second: tuple[str, ...]


Change = Edit | Add | AsOthers | Hide | Overlap


def without(*phases: str) -> Edit:
    """Remove phases, or single spans of them, from every rank."""
    return Edit(phases, 0.0)


def every(phases: tuple[str, ...], before: float, after: float) -> Edit:
    """Something that is done once every `before` steps, done once every `after` steps instead.

    As every step pays its share, means are right and single steps are not.
    """
    return Edit(phases, before / after)


def halved(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return half of what each change does, where that is known."""
    return tuple(_half(change) for change in changes)


def _half(change: Change) -> Change:
    match change:
        case Edit():
            return replace(change, factor=(1 + change.factor) / 2)
        case Add():
            return replace(change, seconds=change.seconds / 2)
        case _:
            return change


def belongs(part: str, name: str) -> bool:
    """Whether a span's name belongs to a part of a step: `sync/gather` to itself and to `sync`."""
    return name == part or name.startswith(f"{part}/")


def only_removes(changes: Iterable[Change]) -> bool:
    """Whether none of the changes adds work; `Hide` moves it, and may leave more to wait for."""
    return all(_removes(change) for change in changes)


def _removes(change: Change) -> bool:
    match change:
        case Edit():
            return change.factor <= 1
        case Add():
            return change.seconds <= 0
        case _:
            return True
