"""What a run of the bench came to."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.healthy import Calm
from tests.faults.score import Outcome


@dataclass(frozen=True)
class Results:
    """The faults, in the order in which they are declared, and the healthy jobs."""

    outcomes: tuple[Outcome, ...]
    calm: tuple[Calm, ...]
