"""What is true of a recorded job: from the bench's registry, or from a file beside the bundle."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from tests.faults.cases import draw
from tests.faults.controls import CONTROLS
from tests.faults.healthy import CALM
from tests.faults.registry import Fault, load

ENDING = ".truth.json"
GLOO = "gloo"
CALM_FAMILY = "calm"


class Truth(msgspec.Struct, frozen=True):
    """A right answer.

    Attributes:
        states: what may be said of the job.
        classes: the causes that an engineer would accept; empty: not judged.
        culprits: ranks of which some must be named, and no other; empty: none may be named; None:
            not judged.
        source: where the job comes from: `gloo`, `spin`, `trl`, `verl` ...
        family: the group whose cases are alike; the source where none is given.
        fault: its name in the bench's registry, whose truth then counts.
        culprit: the rank that was drawn to be at fault; -1 for none.
    """

    states: tuple[str, ...]
    classes: tuple[str, ...] = ()
    culprits: tuple[int, ...] | None = None
    source: str = GLOO
    family: str = ""
    fault: str = ""
    culprit: int = -1


class UnknownTruthError(Exception):
    """Nobody says what is true of a bundle; the message names it."""


def slug(name: str) -> str:
    """A fault's or a control's name as that of its bundle's folder."""
    return "".join(c if c.isalnum() else "-" for c in name)


def of_fault(fault: Fault, seed: int) -> Truth:
    """The truth of a fault as this seed draws it."""
    return _filled(Truth((), fault=fault.name, culprit=draw(fault, seed).culprit), fault)


def of_control(source: str = GLOO) -> Truth:
    """The truth of a job that nothing is wrong with."""
    return Truth(CALM, source=source, family=CALM_FAMILY)


def of_bundle(folder: Path, seed: int) -> Truth:
    """From NAME.truth.json beside the bundle, else by its name.

    Raises:
        UnknownTruthError: neither tells.
    """
    beside = folder.with_name(folder.name + ENDING)
    if beside.exists():
        return current(msgspec.json.decode(beside.read_bytes(), type=Truth))
    plain = folder.name.partition("@")[0]
    fault = _faults().get(plain)
    if fault is not None:
        return of_fault(fault, seed)
    if plain in {slug(name) for name in CONTROLS}:
        return of_control()
    raise UnknownTruthError(f"{folder}: no fault has this name, and there is no {beside.name}")


def current(truth: Truth) -> Truth:
    """As the registry has it now: what counts as right may be corrected after a recording."""
    fault = load().get(truth.fault)
    return truth if fault is None else _filled(truth, fault)


@cache
def _faults() -> dict[str, Fault]:
    return {slug(name): fault for name, fault in load().items()}


def _filled(truth: Truth, fault: Fault) -> Truth:
    guilty = fault.truth.guilty(truth.culprit, fault.world_size)
    return msgspec.structs.replace(
        truth, states=fault.truth.states, classes=fault.truth.classes,
        culprits=tuple(sorted(guilty)), family=fault.family,
    )  # fmt: skip
