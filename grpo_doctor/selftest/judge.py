"""The rules' findings of a job, compared with the truth."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.selftest.cases import Case


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job. `problem` says why it could not be judged."""

    case: Case
    findings: tuple[str, ...] = ()
    seconds: float = 0.0
    problem: str = ""

    @property
    def missed(self) -> bool:
        """What is wrong was not said."""
        return bool(self.case.has) and not self.case.has & set(self.findings)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Said, and not true of this job."""
        return tuple(i for i in self.findings if i not in self.case.has | self.case.may)

    @property
    def right(self) -> bool:
        """Everything found is true, and the fault was found."""
        return not (self.problem or self.missed or self.wrong)


def judge(case: Case, rule_ids: list[str], seconds: float) -> Outcome:
    """Hold the ids of the rules that fired to the case."""
    return Outcome(case, tuple(sorted(rule_ids)), seconds)
