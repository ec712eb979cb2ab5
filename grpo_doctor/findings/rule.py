"""What a rule is and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from grpo_doctor.findings.shared import HIGH_SHARE, MEDIUM_SHARE, Severity, severity_of
from grpo_doctor.findings.signals import Signal
from grpo_doctor.knobs.advice import Form
from grpo_doctor.whatif import Prediction, WhatIf, Withheld
from grpo_doctor_reports.schema import findings

Safety = Literal["same-math", "changes-numerics", "changes-algorithm", "needs-code"]
Family = Literal[
    "offload", "rollout", "sync", "data", "reward", "training", "system", "learning", "visibility"
]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule's metadata; its text is the Markdown next to its file.

    A rule is asked only of recordings that hold what it `needs`, and sees of them only that and
    what it `uses` where it was recorded: names of series, counters and metrics, `*` for any text.
    """

    id: str
    slug: str
    title: str
    family: Family
    needs: tuple[Signal, ...]
    min_ranks: int = 1
    uses: tuple[str | Signal, ...] = ()

    @property
    def used(self) -> frozenset[str]:
        """The names of what it reads where that was recorded."""
        return frozenset(
            name
            for part in self.uses
            for name in (part.reads if isinstance(part, Signal) else (part,))
        )

    @property
    def declared(self) -> frozenset[str]:
        """The names of all that it may read."""
        return self.used.union(*(signal.reads for signal in self.needs))


# One measured number. The engine leaves out what has no value: it was not recorded.
Evidence: TypeAlias = findings.Evidence


def scaled(value: float | None, factor: float = 1.0, digits: int | None = None) -> float | None:
    """Return a number for evidence in another unit, or rounded; None where there is none."""
    if value is None:
        return None
    return factor * value if digits is None else round(factor * value, digits)


_NOTHING_SAID = Withheld("")


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of a setting, or (`knob` None) what `spelling` says.

    Its `spelling` can be pasted as it is: a flag, a line of a file, of code or of a shell. Of one
    that goes elsewhere than into the job's own command only `typed` is, at the place `where`. Where
    nothing can be pasted (`form` is `words`) it is advice on what to look at or to change: the next
    step of the user. The engine replays `change`: what that says is `predicted`, or `unpredicted`
    has the reason why nothing is, and `risk` repeats it.
    """

    knob: str | None
    before: Any
    after: Any
    spelling: str
    predicted: Prediction | None
    safety: Safety
    risk: str
    unpredicted: str = ""
    form: Form = "flag"
    typed: str = ""
    where: str = ""
    change: WhatIf = _NOTHING_SAID

    @property
    def pasted(self) -> bool:
        """Whether there is anything to paste."""
        return self.form != "words"


# Where nothing is predicted a cost is a bound: it counts for no more than its severity says.
_MOST_UNPREDICTED: dict[Severity, float] = {
    "high": 1.0,
    "medium": MEDIUM_SHARE,
    "low": 0.01,
    "info": 0.0,
}


# The severity of a finding whose rule says none: by its cost.
_BY_COST = cast("Severity", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that costs this run time or what it learns.

    `cost` is the share of the step time that is wasted, 0 where it is not time that is lost; it
    gives the severity where the rule says none.
    `headline` is the rule's title with this run's own names, where there is more to say. `phases`
    may be none; `ranks` and `steps`, by their numbers, are those that show it, empty for all.
    What `ruins` a run, so that its speed is of no matter, comes before what only costs time.
    """

    severity: Severity = _BY_COST
    confidence: float
    evidence: tuple[Evidence, ...]
    cause: str
    fixes: tuple[Fix, ...]
    headline: str = ""
    cost: float = 0.0
    phases: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    ruins: bool = False

    def __post_init__(self) -> None:
        if self.severity == _BY_COST:
            object.__setattr__(self, "severity", severity_of(self.cost))

    def sets(self, knob: str) -> bool:
        """Return whether it advises a value for this setting."""
        return any(fix.knob == knob for fix in self.fixes)

    @property
    def to_paste(self) -> tuple[Fix, ...]:
        """The fixes that can be pasted."""
        return tuple(fix for fix in self.fixes if fix.pasted)

    @property
    def next_steps(self) -> tuple[Fix, ...]:
        """The next steps: advice that can't be pasted."""
        return tuple(fix for fix in self.fixes if not fix.pasted)

    @property
    def remedy(self) -> Fix | None:
        """What headline, card and what-if name: what can be pasted before advice, and of each what
        has a prediction; but advice with a prediction before a fix without."""
        offered = (*self.to_paste, *self.next_steps)
        return next((fix for fix in offered if fix.predicted), next(iter(offered), None))

    @property
    def gain(self) -> float:
        """What the remedy is predicted to gain, in percent of the step time; 0: not predicted."""
        predicted = self.remedy.predicted if self.remedy else None
        return -predicted.mid if predicted else 0.0

    @property
    def is_severe(self) -> bool:
        """Whether it is worth acting on at once."""
        return self.severity in ("high", "medium")

    @property
    def is_bound(self) -> bool:
        """Whether the cost is a bound: its rule says less of it, and no gain is predicted."""
        predicted = self.remedy is not None and self.remedy.predicted is not None
        return self.cost >= HIGH_SHARE and self.severity != "high" and not predicted

    @property
    def recoverable(self) -> float:
        """What of the step time can come back: as predicted, else at most what it costs."""
        predicted = self.remedy.predicted if self.remedy else None
        return self.gain / 100 if predicted else min(self.cost, _MOST_UNPREDICTED[self.severity])


@dataclass(frozen=True, slots=True)
class Passed:
    """The run does not have it; `note` is the number that says so."""

    note: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The question does not arise for this run, or (`left_out`) was not asked by its reader."""

    reason: str
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class NotRun:
    """A rule that could not judge: the signals that it lacks, and how to get them."""

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleError:
    """A rule that failed. That is a defect of the rule, and no word about the run.

    `exception` is the name of its class, and `message` what it said.
    """

    exception: str
    message: str


Answer = Finding | Passed | NotApplicable
Outcome = Answer | NotRun | RuleError
