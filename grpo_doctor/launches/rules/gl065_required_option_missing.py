"""A required option is missing.

ms-swift ends while it reads its arguments if there is no dataset, and before the first step if
there is no reward. `trl grpo` ends without a dataset; OpenRLHF ends without a model or prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grpo_doctor.launches.rule import TRAINS, Flaw, View, fatal_flaw

DOMAIN = replace(TRAINS, whole=True)
_DATA = ("--dataset", "dataset", "cached_dataset", "load_data_args", "load_args")
_REWARD = ("--reward_funcs", "reward_funcs", "reward_model", "use_gym_env", "teacher_model",
           "teacher_model_server", "teacher_adapters")  # fmt: skip
_REQUIRED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ms-swift": {"training dataset": _DATA, "reward": _REWARD},
    "trl": {"training dataset": ("--dataset_name", "dataset_name", "datasets")},
    "openrlhf": {
        "prompts": ("--prompt_data", "prompt_data", "data.prompt_dataset"),
        "model": ("--pretrain", "pretrain", "actor.model_name_or_path"),
    },
}
"""What each framework needs, the option for it, and all options that give it."""


def check(view: View) -> Flaw | None:
    """What nobody gives, where all of the launch could be read."""
    launch = view.launch
    if not launch.options or _is_open(view):
        return None
    required = dict(_REQUIRED.get(launch.framework, {}))
    if launch.options.get("use_gym_env"):  # the environment gives the reward
        required.pop("reward", None)
    missing = {
        what: options[0]
        for what, options in required.items()
        if not (what == "reward" and view.value("vllm.mode") == "server")  # the server may have it
        and not any(full.startswith(name) for full in options[1:] for name in launch.options)
    }
    if not missing:
        return None
    listed = " and ".join(f"no {what}" for what in missing)
    flags = [_spelled(view, what, flag) for what, flag in missing.items()]
    return fatal_flaw(
        headline=f"{listed}: pass {' and '.join(flags)}",
        evidence=(f"{launch.framework} ends at its start without",),
        fixes=tuple(f"{flag} ..." for flag in flags),
    )


def _is_open(view: View) -> bool:
    """Whether more options may come from a variable that is not set here."""
    return any(problem.kind == "unset-variable" for problem in view.launch.problems)


def _spelled(view: View, what: str, flag: str) -> str:
    dotted = any("." in name for name in view.launch.options)
    names = _REQUIRED[view.launch.framework][what]
    return f"--{names[-1]}" if dotted and view.launch.framework == "openrlhf" else flag
