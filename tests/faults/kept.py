"""Where the evidence of a case is kept, and what is true of it, beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

TRUTH_ENDING = ".truth.json"
GLOO = "gloo"


class Truth(msgspec.Struct, frozen=True):
    """A right answer about a recorded job.

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


@dataclass(frozen=True)
class Shelf:
    """A folder of bundles, each with `NAME.truth.json` beside it."""

    folder: Path

    def place(self, name: str, number: int, truth: Truth) -> Path:
        """Where the bundle of this case goes; `number` tells several of one name apart, from 0."""
        bundle = self.folder / (slug(name) + (f"@{number}" if number else ""))
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = bundle.with_name(bundle.name + TRUTH_ENDING)
        beside.write_text(json.dumps(msgspec.to_builtins(truth)) + "\n", encoding="utf-8")
        return bundle


def slug(name: str) -> str:
    """A fault's or a control's name as that of its bundle."""
    return "".join(c if c.isalnum() else "-" for c in name)
