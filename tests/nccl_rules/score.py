"""How often the dumps alone name the culprits, per kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model import matching
from tests.nccl_rules.cases import REASONS, Case

BLAMELESS = ("link broken", "healthy")


@dataclass(frozen=True)
class Answer:
    """What was said of one case."""

    case: Case
    culprits: tuple[int, ...]
    cause: str
    reasons: frozenset[str]
    grounds: str | None = None

    @property
    def right(self) -> bool:
        """All that must be named, nobody else."""
        named = frozenset(self.culprits)
        if self.case.kind in BLAMELESS:
            return not named
        return self.case.needed <= named <= self.case.culprits and bool(named)

    @property
    def reason_right(self) -> bool:
        """Whether the reason fits the fault."""
        if self.case.kind in BLAMELESS:
            return not self.culprits
        return self.right and self.reasons <= REASONS[self.case.kind]

    @property
    def wrong_ring(self) -> bool:
        """A ring of groups where none was made."""
        return self.cause == "group-order-cycle" and self.case.kind not in (
            "order swapped",
            "order swapped on a minority",
            "collective skipped",
        )


def answer(case: Case) -> Answer:
    """Asks the matcher."""
    found = matching.match(dumps.read(case.files), case.world)
    ruling = matching.judge(found)
    named = set(ruling.culprits)
    if not case.recorder.entries and case.kind == "healthy":
        named = set()  # counters have no times: whether a job stands is told by two looks at it
    reasons = frozenset(one.reason for one in found.blame if one.rank in named)
    return Answer(case, tuple(sorted(named)), ruling.cause, reasons, ruling.grounds)


def answers(cases: Iterable[Case], tell: Callable[[Answer], None] | None = None) -> list[Answer]:
    """Asks of all."""
    found = []
    for case in cases:
        found.append(answer(case))
        if tell is not None:
            tell(found[-1])
    return found


def table(found: Sequence[Answer]) -> str:
    """Markdown: one line per kind."""
    lines = [
        "| fault | cases | culprits right | reason right | a ring where none is |",
        "|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys(one.case.kind for one in found)
    rows = [_row(kind, [one for one in found if one.case.kind == kind]) for kind in kinds]
    return "\n".join([*lines, *rows, _row("**all**", found)])


def _row(name: str, of: Sequence[Answer]) -> str:
    right, reason = sum(one.right for one in of), sum(one.reason_right for one in of)
    return f"| {name} | {len(of)} | {right} | {reason} | {sum(one.wrong_ring for one in of)} |"
