"""The document of `treat --json`, which `treat.json` has after each trial. Changes are in percent
of the goal, negative is less time; intervals of measurements are at least 95%."""

from __future__ import annotations

from msgspec import field

from grpo_doctor_reports.schema.part import AnyDocument, Block, Name, Numbers, Part, Prose, read
from grpo_doctor_reports.schema.report import Tool

SCHEMA = 1
WHILE_RUNNING = "wait until it ends; Ctrl-C ends it with the best command so far"


class Percent(Part, frozen=True):
    """A change with its interval."""

    low: float = 0.0
    mid: float = 0.0
    high: float = 0.0


class ChangeEntry(Part, frozen=True):
    """A change. `math`: same-math, changes-numerics (rounding), changes-algorithm or needs-code.
    `state`: untried, tried, kept, rolled back or refused; `why` is the reason."""

    index: int = 0
    finding: Name = ""
    title: Prose = ""
    text: Prose = ""
    math: Name = ""
    risk: Prose = ""
    cost_pct: float = 0.0
    predicted: Percent | None = None
    unpredicted: Prose = ""
    state: Name = "untried"
    why: Prose = ""
    pairs: int = 0
    measured: Percent | None = None
    as_predicted: bool | None = None


class TrialEntry(Part, frozen=True):
    """A short run. `side`: survey (the first), before or after a `change`. `state`: measured, out
    of memory, failed, stuck or no steps. `steps` are numbers; `seconds` and `tokens` theirs."""

    number: int = 0
    side: Name = ""
    change: int | None = None
    state: Name = ""
    why: Prose = ""
    folder: Prose = ""
    wall_s: float = 0.0
    steps: list[int] = []
    seconds: Numbers = []
    tokens: Numbers = []

    @property
    def step_seconds(self) -> list[float]:
        """The seconds of each step, 0 for what a damaged card lacks."""
        return [seconds or 0.0 for seconds in self.seconds]


class TreatDocument(Part, frozen=True):
    """The whole. `state`: running, ended, out of budget, interrupted, failed or dry run. Of each
    trial `warmup` steps are left out and `steps` count. `patch` is of `script`."""

    schema: int = SCHEMA
    tool: Tool = field(default_factory=Tool)
    state: Name = "running"
    verdict: Prose = ""
    next_step: Prose = WHILE_RUNNING
    command: list[Prose] = []
    framework: Name = ""
    framework_version: Name | None = None
    goal: Name = "step-time"
    allows_algorithm: bool = False
    budget_s: float = 0.0
    spent_s: float = 0.0
    warmup: int = 0
    steps: int = 0
    changes: list[ChangeEntry] = []
    trials: list[TrialEntry] = []
    result: list[Prose] = []
    script: Prose = ""
    patch: Block = ""


def read_treatment(document: AnyDocument) -> TreatDocument:
    """Return the document. Raises DocumentError: it has another schema, or is damaged."""
    return read(document, TreatDocument, SCHEMA, "grpo-doctor treat --json")
