"""What a model or a rule of `check` knows; of other launches it says nothing, and says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_doctor.launches.model import Launch, Problem, Role
from grpo_doctor.launches.tables import TABLES

TRAINERS = ("ms-swift", "trl", "verl", "openrlhf", "bundled")
GROUPED = ("grpo", "rloo", "reinforce")
"""Policy gradients on sampled completions without a critic."""
SAMPLED = (*GROUPED, "ppo")
_WHAT: Mapping[str, str] = TABLES["trainings"]["outside"]


_USUAL = re.compile(r"(?:(?:^|/)(?:verl\.)*trainer[./]main_ppo|dapo[./]main_dapo)(?:\.py)?$")
"""verl's programs that train as `main_ppo` does, not those of a package that has its own."""
_NOT_DECISIVE = ("train.lr", "train.beta", "checkpoint.", "log.")


def kind_of(launch: Launch) -> str:
    """Return what a command trains, for a model or rule that asks whether it knows that."""
    if launch.framework == "trl" and launch.trainer == "rloo":
        return "rloo of TRL"
    samples = launch.framework == "verl" and launch.trainer in SAMPLED
    if samples and not _USUAL.search(launch.subcommand):
        return "recipe"
    critic = str(launch.options.get("critic.enable", "")).lower()
    if samples and critic in ("true", "false"):
        return "ppo" if critic == "true" else "grpo"
    return launch.trainer


def unread(launch: Launch) -> Problem | None:
    """What could not be read of a launch and decides its settings; then defaults say nothing."""
    problems = (problem for problem in launch.problems if problem.kind == "unreadable")
    missing = None if launch.complete else next(problems, None)
    decisive = (said for knob, said in launch.open.items() if not knob.startswith(_NOT_DECISIVE))
    return missing or next(decisive, None)


@dataclass(frozen=True, slots=True)
class Domain:
    """The launches of which something is known; a launch outside gets no answer from its owner.

    `trainings` are words of `kind_of`, for training commands alone.
    """

    frameworks: tuple[str, ...] = TRAINERS
    trainings: tuple[str, ...] = GROUPED
    roles: tuple[Role, ...] = ("train",)
    backends: tuple[str, ...] = ("", "megatron")
    whole: bool = False
    """Whether all of the launch must have been read, because a missing setting decides."""

    def holds(self, launch: Launch) -> bool:
        """Return whether the launch is inside."""
        trains = launch.role != "train" or kind_of(launch) in self.trainings
        known = launch.framework in self.frameworks and launch.backend in self.backends
        read = launch.complete or not self.whole
        return known and launch.role in self.roles and trains and read and not launch.outside

    def outside(self, launch: Launch, knower: str) -> str | None:
        """Return a sentence that says what of the launch is not known, and what is; None inside."""
        if self.holds(launch):
            return None
        if launch.outside is not None:
            return f"{launch.outside}; {knower} knows ms-swift, TRL, verl and OpenRLHF"
        other = "the kind of training is not clear from the command"
        return f"{_WHAT.get(kind_of(launch), other)}; {knower} knows GRPO-type training"
