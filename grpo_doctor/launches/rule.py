"""What a sanity rule of launches is, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_doctor.launches.domain import (
    EVERY_COMMAND,
    LIKE_TRL,
    MEGATRON,
    NOT_OPENRLHF,
    OPENRLHF,
    PLAIN_LIKE_TRL,
    PLAIN_SWIFT,
    PLAIN_SWIFT_AND_TRL,
    PLAIN_VERL,
    SAMPLED,
    SAMPLES,
    SWIFT,
    SWIFT_AND_TRL,
    SWIFT_MEGATRON,
    TRAINS,
    VERL,
    Domain,
)
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.view import View, divisors
from grpo_doctor_reports.severity import Severity

__all__ = [
    "EVERY_COMMAND",
    "LIKE_TRL",
    "MEGATRON",
    "NOT_OPENRLHF",
    "OPENRLHF",
    "PLAIN_LIKE_TRL",
    "PLAIN_SWIFT",
    "PLAIN_SWIFT_AND_TRL",
    "PLAIN_VERL",
    "SAMPLED",
    "SAMPLES",
    "SWIFT",
    "SWIFT_AND_TRL",
    "SWIFT_MEGATRON",
    "TRAINS",
    "VERL",
    "Domain",
    "Flaw",
    "Rule",
    "View",
    "divisors",
    "fatal_flaw",
]


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong with a launch.

    `ends` says that the job refuses to start or dies of it, and `first` that nothing else matters
    before this is fixed. `unverified` says that it can only be checked on the machine of the run.
    `fixes` are in the words of the framework.
    """

    severity: Severity
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[str, ...]
    source: Source | None = None
    ends: bool = False
    first: bool = False
    unverified: bool = False


def fatal_flaw(
    *,
    headline: str,
    evidence: tuple[str, ...],
    fixes: tuple[str, ...],
    source: Source | None = None,
) -> Flaw:
    """A flaw with which the job refuses to start, or of which it dies."""
    return Flaw("high", headline, evidence, fixes, source, ends=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """A sanity rule. `text` is the docstring of its file, and begins with the rule's title."""

    id: str
    slug: str
    text: str
    domain: Domain
    find: Callable[[View], Flaw | None]

    def check(self, view: View) -> Flaw | None:
        """What is wrong with the launch; nothing where the rule does not know its kind."""
        return self.find(view) if self.domain.holds(view.launch) else None
