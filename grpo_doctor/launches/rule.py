"""What a sanity rule of launches is, and what it may answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

from grpo_doctor.launches.domain import SAMPLED, TRAINERS, Domain
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.view import View, divisors
from grpo_doctor_reports.severity import Severity

__all__ = ["SAMPLED", "Domain", "View", "divisors"]

TRAINS = Domain()
SAMPLES = Domain(trainings=SAMPLED)
SWIFT_AND_TRL = Domain(("ms-swift", "trl"))
LIKE_TRL = Domain(("trl", "ms-swift", "bundled"))
"""They count a rollout in completions per process, as TRL does."""
SWIFT = Domain(("ms-swift",))
VERL = Domain(("verl",), SAMPLED)
OPENRLHF = Domain(("openrlhf",), SAMPLED)
NOT_OPENRLHF = Domain(("bundled", "ms-swift", "trl", "verl"), SAMPLED)
PLAIN_SWIFT_AND_TRL, PLAIN_LIKE_TRL, PLAIN_SWIFT, PLAIN_VERL = (
    replace(domain, backends=("",)) for domain in (SWIFT_AND_TRL, LIKE_TRL, SWIFT, VERL)
)
"""Without Megatron."""
MEGATRON = replace(SAMPLES, backends=("megatron",))
SWIFT_MEGATRON = replace(SWIFT, backends=("megatron",))
EVERY_COMMAND = Domain((*TRAINERS, "vllm", "sglang"), SAMPLED, ("train", "rollout server"))


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong with a launch.

    `ends` says that the job refuses to start or dies of it, and `first` that nothing else matters
    before this is fixed. `unverified` says that it can only be checked on the machine of the run.
    `fixes` are in the words of the framework.
    """

    severity: Severity
    headline: str
    evidence: tuple[str, ...]
    fixes: tuple[str, ...]
    source: Source | None = None
    ends: bool = False
    first: bool = False
    unverified: bool = False


def fatal_flaw(
    *,
    headline: str,
    evidence: tuple[str, ...],
    fixes: tuple[str, ...],
    source: Source | None = None,
) -> Flaw:
    """Return a problem that stops the job from starting, or ends it later."""
    return Flaw("high", headline, evidence, fixes, source, ends=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """A sanity rule. `text` is its docstring, which begins with the rule's title."""

    id: str
    slug: str
    text: str
    domain: Domain
    find: Callable[[View], Flaw | None]

    def check(self, view: View) -> Flaw | None:
        """Return what is wrong with the launch; nothing where the rule does not know its kind."""
        return self.find(view) if self.domain.holds(view.launch) else None


RULES: list[Rule] = []
Find = Callable[[View], Flaw | None]


def rule(number: str, domain: Domain) -> Callable[[Find], Find]:
    """Enter a function as a rule of this number; its slug is the name of the function."""

    def enter(find: Find) -> Find:
        slug = find.__name__.replace("_", "-")
        RULES.append(Rule(number, slug, inspect.cleandoc(find.__doc__ or ""), domain, find))
        return find

    return enter
