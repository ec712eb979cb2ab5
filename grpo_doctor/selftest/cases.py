"""The jobs, what is true of each, and the findings of one held to that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A job of `actor.py`.

    Attributes:
        name: the fault that the actor plays.
        says: what is wrong, in words.
        has: rules of which one must fire; none for a healthy job.
        may: rules that may fire too.
    """

    name: str
    says: str
    has: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()


# Other programs take the processors: true of the machine that it runs on, and of no job here.
BUSY_MACHINE = "GD023"


def _case(name: str, says: str, *has: str, may: tuple[str, ...] = ()) -> Case:
    return Case(name, says, frozenset(has), frozenset({*may, BUSY_MACHINE}))


CASES: tuple[Case, ...] = (
    _case("healthy", "no fault"),
    _case("straggler", "rank 1 takes twice as long in training", "GD004"),
    _case("slow-reward", "the reward takes half of the step", "GD033", may=("GD034",)),
    _case("slow-loader", "loading takes half of the step", "GD002", may=("GD030", "GD032")),
    _case("checkpoints", "a checkpoint after every step", "GD070", may=("GD071",)),
    _case("garbage", "garbage collection pauses every step", "GD024"),
    _case("nan-reward", "every second reward is NaN", "GD058", may=("GD064",)),
    _case("no-difference", "four of five groups have equal rewards", "GD050", may=("GD059",)),
    _case("cut-off", "half of the completions are cut off", "GD051"),
    _case("collapse", "the entropy collapses to zero", "GD052"),
)


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
