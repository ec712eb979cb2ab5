"""A reward function that can't be sent to another process.

verl's `prime` reward manager scores in a pool of processes, and TRL's AsyncGRPOTrainer spawns a
process that rolls out and scores. Pickle sends a function by its name: a lambda, a function made by
another, and an object of a class inside a function have none. TRL refuses to start; verl prints an
error for each completion and gives it 0, and before 0.5 it wrapped every function in one of these.
"""

from __future__ import annotations

from grpo_doctor.launches.model import Launch
from grpo_doctor.launches.pickling import verl_file
from grpo_doctor.launches.rule import SAMPLED, Domain, Flaw, View

DOMAIN = Domain(("trl", "verl"), SAMPLED)


def check(view: View) -> Flaw | None:
    """What the launch's own code hands to processes that are started for it."""
    launch = view.launch
    verl = launch.framework == "verl"
    if verl and not view.at_least("0.5.0") and _scores_in_a_pool(launch):
        return Flaw(
            severity="high",
            headline=f"verl {launch.version} can't send a custom reward function to its pool: "
            "every reward is 0",
            evidence=("reward_manager is prime", "before 0.5 each is wrapped in a local function"),
            fixes=("reward_model.reward_manager=naive", "or verl 0.5 and later"),
            source=launch.option_sources.get("reward_model.reward_manager"),
        )
    if not launch.unsendable:
        return None
    first = launch.unsendable[0]
    end = "every reward is 0" if verl else "TRL refuses to start"
    fixes = ["a function at the top level of the file, or an object of a class there"]
    if verl:
        fixes.append(
            "or reward_model.reward_manager=naive"
            if not view.at_least("0.7.1")
            else "or reward.reward_manager.name=naive"
        )
    return Flaw(
        severity="high",
        headline=f"{first.name} can't be sent to another process: {end}",
        evidence=tuple(f"{each.name}: {each.reason}" for each in launch.unsendable),
        fixes=tuple(fixes),
        source=first.source,
        ends=not verl,
    )


def _scores_in_a_pool(launch: Launch) -> bool:
    return launch.options.get("reward_model.reward_manager") == "prime" and bool(
        verl_file(launch.options)
    )
