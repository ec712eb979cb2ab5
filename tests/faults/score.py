"""One answer held to the truth, and what many of them come to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.baselines import Other
from tests.faults.registry import Fault

# Rounds of faults whose authors had not read the causes; what their families' names begin with.
ROUNDS = ("unforeseen", "held_out")


@dataclass(frozen=True)
class Answer:
    """What `attach --json` said. `seconds` is the wall time of the whole command."""

    exit_code: int
    seconds: float
    state: str = ""
    cause: str = ""
    culprits: tuple[int, ...] = ()
    confidence: float = 0.0
    summary: str = ""
    pause_ms: float = 0.0
    error: str = ""

    @classmethod
    def from_document(cls, document: dict[str, Any], exit_code: int, seconds: float) -> Answer:
        verdict, cost = document["verdict"], document["cost"]
        return cls(
            exit_code, seconds, verdict["state"], verdict["class"], tuple(verdict["culprits"]),
            verdict["confidence"], verdict["summary"], cost["max_pause_ms"],
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One run of one fault. `skipped` has the reason where it could not be injected;
    `failed` where that is a defect of the bench, or of a machine too slow for it; `retried` has
    what failed at a first try."""

    name: str
    family: str
    classes: tuple[str, ...]
    world_size: int
    culprit: int
    phase: str
    answer: Answer | None = None
    detected: bool = False
    culprit_right: bool = False
    class_right: bool = False
    top_frame: Other | None = None
    top_frame_right: bool = False
    torchfrtrace: Other | None = None
    torchfrtrace_right: bool = False
    skipped: str = ""
    failed: bool = False
    retried: str = ""

    @property
    def round(self) -> str:
        """One of `ROUNDS` if its family was written without knowing how `attach` reasons."""
        return next((name for name in ROUNDS if self.family.startswith(name)), "")

    @property
    def right(self) -> bool:
        return self.detected and self.culprit_right and self.class_right


def judge(fault: Fault, culprit: int, answer: Answer) -> tuple[bool, bool, bool]:
    """Whether the answer detects the fault, names the culprit, and names the class."""
    truth = fault.truth
    blamed = frozenset(answer.culprits)
    guilty = truth.guilty(culprit, fault.world_size)
    return (
        answer.state in truth.states,
        bool(blamed) and blamed <= guilty,
        answer.cause in truth.classes,
    )


def share(outcomes: Sequence[Outcome], is_so: Callable[[Outcome], bool]) -> float:
    """Of these outcomes, in percent."""
    return 100.0 * sum(map(is_so, outcomes)) / len(outcomes) if outcomes else float("nan")


def median(values: Iterable[float]) -> float:
    numbers = list(values)
    return statistics.median(numbers) if numbers else float("nan")


def ninth_decile(values: Iterable[float]) -> float:
    """The value that nine of ten stay below or equal."""
    ordered = sorted(values)
    return ordered[math.ceil(0.9 * len(ordered)) - 1] if ordered else float("nan")
