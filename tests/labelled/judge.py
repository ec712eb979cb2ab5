"""What rules said of labelled runs, held to the labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.labelled.case import ALWAYS_FAIR, OF_BUSY_MACHINES, Case


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found in one run: rule id to severity.

    `busy`: programs that are none of ours had the processors before it began.
    """

    case: Case
    found: dict[str, str]
    seconds: float
    step_s: float | None = None
    failed: str = ""
    busy: bool = False

    @property
    def hit(self) -> bool:
        """The illness was named; true of a healthy run without findings."""
        return bool(self.case.has & set(self.found)) if self.case.has else not self.wrong

    @property
    def wrong(self) -> frozenset[str]:
        """Findings that this run does not have."""
        fair = ALWAYS_FAIR | OF_BUSY_MACHINES if self.busy else ALWAYS_FAIR
        return frozenset(self.found) - self.case.has - self.case.may - fair

    @property
    def alarms(self) -> frozenset[str]:
        """Findings of high severity on a healthy run."""
        if self.case.has:
            return frozenset()
        alarming = {i for i, severity in self.found.items() if severity == "high"}
        return frozenset(alarming & self.wrong)


@dataclass(frozen=True, slots=True)
class Score:
    """Counts over runs. A finding counts once per run."""

    runs: int
    ill: int
    recalled: int
    true_findings: int
    false_findings: int
    healthy_alarms: int
    busy: int

    @property
    def recall(self) -> float:
        """Of the ill runs, the share whose illness was named."""
        return self.recalled / self.ill if self.ill else 1.0

    @property
    def precision(self) -> float:
        """Of all findings, the share that is true of its run."""
        total = self.true_findings + self.false_findings
        return self.true_findings / total if total else 1.0


def score(runs: Iterable[Outcome]) -> Score:
    """Counts over all runs that did not fail."""
    rows = [row for row in runs if not row.failed]
    ill = [row for row in rows if row.case.has]
    return Score(
        runs=len(rows),
        ill=len(ill),
        recalled=sum(row.hit for row in ill),
        true_findings=sum(len(set(row.found) - row.wrong) for row in rows),
        false_findings=sum(len(row.wrong) for row in rows),
        healthy_alarms=sum(bool(row.alarms) for row in rows),
        busy=sum(row.busy for row in rows),
    )


def by_name(runs: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Runs of the same illness together, in the order of their first."""
    groups: dict[str, list[Outcome]] = {}
    for row in runs:
        groups.setdefault(row.case.name, []).append(row)
    return groups
