"""What is true of a recorded job: from the bench's registry, or from a file beside the bundle."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from tests.faults.cases import draw, truth_of
from tests.faults.controls import CONTROLS
from tests.faults.healthy import CALM, FAMILY
from tests.faults.kept import TRUTH_ENDING, Truth, slug
from tests.faults.registry import Fault, load


class UnknownTruthError(Exception):
    """Nobody says what is true of a bundle; the message names it."""


def of_bundle(folder: Path, seed: int) -> Truth:
    """From NAME.truth.json beside the bundle, else by its name.

    Raises:
        UnknownTruthError: neither tells.
    """
    beside = folder.with_name(folder.name + TRUTH_ENDING)
    if beside.exists():
        return current(msgspec.json.decode(beside.read_bytes(), type=Truth))
    plain = folder.name.partition("@")[0]
    fault = _faults().get(plain)
    if fault is not None:
        return truth_of(fault, draw(fault, seed).culprit)
    if plain in {slug(name) for name in CONTROLS}:
        return Truth(CALM, family=FAMILY)
    raise UnknownTruthError(f"{folder}: no fault has this name, and there is no {beside.name}")


def current(truth: Truth) -> Truth:
    """As the registry has it now: what counts as right may be corrected after a recording."""
    fault = load().get(truth.fault)
    return truth if fault is None else truth_of(fault, truth.culprit)


@cache
def _faults() -> dict[str, Fault]:
    return {slug(name): fault for name, fault in load().items()}
