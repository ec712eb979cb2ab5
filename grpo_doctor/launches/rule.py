"""What a sanity rule of launches is, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.launches.model import Source
from grpo_doctor_reports.severity import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's metadata; its documentation is the docstring of its file."""

    id: str
    slug: str
    title: str


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
