"""What a sanity rule of launches is, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grpo_doctor.launches.model import Source
from grpo_doctor.launches.view import View
from grpo_doctor_reports.severity import Severity


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong with a launch.

    `ends` says that the job refuses to start or dies of it, and `first` that nothing else matters
    before this is mended. `fixes` are in the words of the framework.
    """

    severity: Severity
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[str, ...]
    source: Source | None = None
    ends: bool = False
    first: bool = False


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
    check: Callable[[View], Flaw | None]
    """What is wrong with the launch, if anything is."""
