"""Findings, and the rules that did not fire, as types."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpo_doctor_reports.schema.findings import FindingEntry


class Finding(FindingEntry, frozen=True):
    """One diagnosis. `anchor` is unique in the page and safe as an HTML id."""

    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that did not fire, and why.

    `signals` are what it lacks, one by one; `left_out` says that its reader did not ask it.
    """

    id: str
    slug: str
    title: str
    note: str
    signals: list[str] = field(default_factory=list)
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Checks:
    """The rules that did not fire, by outcome."""

    passed: list[Check]
    not_run: list[Check]
    not_applicable: list[Check]
    failed: list[Check] = field(default_factory=list)
