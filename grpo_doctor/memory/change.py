"""Find what to change: compare the memory estimates of changed setups with that of this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_doctor.errors import UsageError
from grpo_doctor.memory.edits import SIZES, SOLVABLE, UTILIZATION, Edit, apply, relieving, spending
from grpo_doctor.memory.estimate import ledger_of
from grpo_doctor.memory.ledger import Ledger
from grpo_doctor.memory.setup import Setup

_MOST_CHANGES = 5
_BEAM = 12
_NOTICEABLE = 0.01
"""Of the card: a smaller change of the peak is no advice, because the peak is elsewhere."""
Allowed = Callable[[Edit], bool]
"""Whether the framework at hand has the setting and takes the value."""


@dataclass(frozen=True, slots=True)
class Change:
    """Edits made together, and the memory estimate with them."""

    edits: tuple[Edit, ...]
    ledger: Ledger
    saved_bytes: int
    """How much lower the peak of the trainer's cards is, in `relief` the phase that decides; below
    0 where it is higher."""


def solve(setup: Setup, knob: str, server: Setup | None = None) -> float | None:
    """Return the largest value of a setting with which the job still fits; None if none does.

    Raises:
        UsageError: the setting has no largest value, or memory does not depend on it.
    """
    if knob not in SOLVABLE:
        raise UsageError(f"{knob} has no largest value; these have: {', '.join(SOLVABLE)}")
    for value in reversed(SOLVABLE[knob]):
        if _fits(ledger_of(apply(setup, knob, value), server=server)):
            return value
    return None


def fixes(setup: Setup, server: Setup | None = None, allowed: Allowed = bool) -> Change | None:
    """The smallest set of edits that makes a job fit, the cheapest in time of several.

    Edits that make another experiment of the run are in it only where nothing else suffices.
    `allowed` leaves out what the framework lacks. None where the job fits already, or nothing that
    is known here makes it fit. Sets grow edit by edit from those that come nearest, so a set may
    be missed of which no part helps alone.
    """
    before = ledger_of(setup, server=server)
    if _fits(before):
        return None

    same = _smallest(
        setup, server, lambda edit: edit.experiment == "same" and allowed(edit), before
    )
    return same or _smallest(setup, server, allowed, before)


def _smallest(
    setup: Setup, server: Setup | None, allowed: Allowed, before: Ledger
) -> Change | None:
    beam: list[tuple[Edit, ...]] = [()]
    for _ in range(_MOST_CHANGES):
        ledgers = {
            chosen: ledger_of(_applied(setup, chosen), server=server)
            for chosen in _longer(setup, beam, allowed)
        }
        fitting = [chosen for chosen, ledger in ledgers.items() if _fits(ledger)]
        if fitting:
            best = _with_largest_share(setup, min(fitting, key=_cost), server)
            return _change(setup, best, server, before)
        nearest = sorted(ledgers, key=lambda chosen: (_excess(ledgers[chosen]), _cost(chosen)))
        beam = nearest[:_BEAM]
    return None


def relief(setup: Setup, server: Setup | None = None, allowed: Allowed = bool) -> list[Change]:
    """What one edit of a setting saves of the phase that decides, the largest first, whether or not
    it suffices."""
    before = ledger_of(setup, server=server).train.decisive.bytes
    changes: dict[str, Change] = {}
    for edit in (edit for edit in relieving(setup) if allowed(edit)):
        after = ledger_of(_applied(setup, (edit,)), server=server)
        saved = before - after.train.decisive.bytes
        if edit.knob not in changes or saved > changes[edit.knob].saved_bytes:
            changes[edit.knob] = Change((edit,), after, saved)
    return sorted(
        (c for c in changes.values() if c.saved_bytes > _NOTICEABLE * setup.card_bytes),
        key=lambda change: -change.saved_bytes,
    )


def room(setup: Setup, server: Setup | None = None, allowed: Allowed = bool) -> list[Change]:
    """Where a job fits: what would make it faster and still fit."""
    before = ledger_of(setup, server=server)
    if not _fits(before):
        return []
    changes = [_change(setup, (edit,), server, before) for edit in spending(setup) if allowed(edit)]
    least = _NOTICEABLE * setup.card_bytes
    return [c for c in changes if abs(c.saved_bytes) > least and _fits(c.ledger)]


def _fits(ledger: Ledger) -> bool:
    return ledger.state == "fits"


def _applied(setup: Setup, edits: Sequence[Edit]) -> Setup:
    for edit in edits:
        setup = apply(setup, edit.knob, edit.value)
    return setup


def _with_largest_share(
    setup: Setup, edits: tuple[Edit, ...], server: Setup | None
) -> tuple[Edit, ...]:
    """The same edits with as much memory for the engine as still fits."""
    for index, edit in enumerate(edits):
        if edit.knob != UTILIZATION:
            continue
        larger = [share for share in SOLVABLE[UTILIZATION] if share > edit.value]
        for share in reversed(larger):
            chosen = (*edits[:index], replace(edit, value=share), *edits[index + 1 :])
            if share < setup.rollout_engine.memory_share and _fits(
                ledger_of(_applied(setup, chosen), server=server)
            ):
                return chosen
    return edits


def _cost(edits: Sequence[Edit]) -> tuple[int, float, float]:
    shares = sum(edit.value for edit in edits if edit.knob == UTILIZATION)
    sizes = sum(edit.value for edit in edits if edit.knob in SIZES)
    return sum(edit.slowdown for edit in edits), -shares, -sizes


def _longer(
    setup: Setup, beam: Sequence[tuple[Edit, ...]], allowed: Allowed
) -> Iterator[tuple[Edit, ...]]:
    """Every set of the beam with one more edit, each set once."""
    yielded: set[frozenset[tuple[str, Any]]] = set()
    for chosen in beam:
        knobs = {edit.knob for edit in chosen}
        for edit in relieving(_applied(setup, chosen)):
            key = frozenset((part.knob, part.value) for part in (*chosen, edit))
            if edit.knob not in knobs and key not in yielded and allowed(edit):
                yielded.add(key)
                yield (*chosen, edit)


def _excess(ledger: Ledger) -> tuple[int, float]:
    """How far from fitting: reasons not to start, then the shares of cards that phases lack."""
    lacking = sum(pool.lacking(phase) for pool in ledger.pools for phase in pool.phases)
    return sum(len(pool.refusals) for pool in ledger.pools), lacking


def _change(setup: Setup, edits: tuple[Edit, ...], server: Setup | None, before: Ledger) -> Change:
    after = ledger_of(_applied(setup, edits), server=server)
    return Change(edits, after, before.train.peak.bytes - after.train.peak.bytes)
