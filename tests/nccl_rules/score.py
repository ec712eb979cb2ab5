"""How often the dumps alone name the culprits, per kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from tests.nccl_rules.cases import REASONS, Case
from tests.verdicts import of_dumps

BLAMELESS = ("link broken", "healthy")


@dataclass(frozen=True)
class Answer:
    """What was said of one case."""

    case: Case
    culprits: tuple[int, ...]
    cause: str
    reasons: frozenset[str]

    @property
    def right(self) -> bool:
        """All that must be named, nobody else."""
        blamed = frozenset(self.culprits)
        if self.case.kind in BLAMELESS:
            return not blamed
        return self.case.needed <= blamed <= self.case.culprits and bool(blamed)

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
    result = match(dumps.read(case.files), case.world)
    verdict = of_dumps(case.files, case.world)
    blamed = set(verdict.culprits)
    if not case.recorder.entries and case.kind == "healthy":
        blamed = set()  # counters have no times: whether a job stands is told by two looks at it
    reasons = frozenset(blame.reason for blame in result.blame if blame.rank in blamed)
    return Answer(case, tuple(sorted(blamed)), verdict.cause, reasons)


def answers(cases: Iterable[Case], tell: Callable[[Answer], None] | None = None) -> list[Answer]:
    """Asks of all."""
    results = []
    for case in cases:
        results.append(answer(case))
        if tell is not None:
            tell(results[-1])
    return results


def table(results: Sequence[Answer]) -> str:
    """Markdown: one line per kind."""
    lines = [
        "| fault | cases | culprits right | reason right | a ring where none is |",
        "|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys(answer.case.kind for answer in results)
    rows = [
        _row(kind, [answer for answer in results if answer.case.kind == kind]) for kind in kinds
    ]
    return "\n".join([*lines, *rows, _row("**all**", results)])


def _row(name: str, of: Sequence[Answer]) -> str:
    right, reason = sum(answer.right for answer in of), sum(answer.reason_right for answer in of)
    return (
        f"| {name} | {len(of)} | {right} | {reason} | {sum(answer.wrong_ring for answer in of)} |"
    )
