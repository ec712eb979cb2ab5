"""A required option is missing.

ms-swift ends while it reads its arguments if there is no dataset, and before the first step if
there is no reward. `trl grpo` ends without a dataset; OpenRLHF ends without a model or prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from grpo_doctor.launches.rule import TRAINS, Flaw, View, fatal_flaw

DOMAIN = replace(TRAINS, whole=True)
_REQUIRED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ms-swift": {
        "training dataset": ("dataset", "cached_dataset", "load_data_args", "load_args"),
        "reward": ("reward_funcs", "reward_model", "use_gym_env", "teacher_model",
                   "teacher_model_server", "teacher_adapters"),
    },
    "trl": {"training dataset": ("dataset_name", "datasets")},
    "openrlhf": {
        "prompts": ("prompt_data", "data.prompt_dataset"),
        "model": ("pretrain", "actor.model_name_or_path"),
    },
}  # fmt: skip
"""What each framework needs, and the options that give it."""


def check(view: View) -> Flaw | None:
    """What nobody gives, where all of the launch could be read."""
    launch, given = view.launch, view.launch.options
    if not given or any(problem.kind == "unset-variable" for problem in launch.problems):
        return None
    missing = [
        (
            what,
            next((name for name in names if "." in name), names[0]) if _dotted(view) else names[0],
        )
        for what, names in _REQUIRED.get(launch.framework, {}).items()
        if not any(full.startswith(name) for full in names for name in given)
        and not (what == "reward" and view.value("vllm.mode") == "server")  # the server may have it
    ]
    if not missing:
        return None
    return fatal_flaw(
        headline=f"{' and '.join(f'no {what}' for what, _ in missing)}: "
        f"pass {' and '.join(f'--{name}' for _, name in missing)}",
        evidence=(f"{launch.framework} ends at its start without",),
        fixes=tuple(f"--{name} ..." for _, name in missing),
    )


def _dotted(view: View) -> bool:
    return any("." in name for name in view.launch.options)
