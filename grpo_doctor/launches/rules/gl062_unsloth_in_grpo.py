"""ms-swift does not train GRPO through unsloth.

unsloth loads a model by its own code and onto one card. ms-swift takes it for supervised training;
of GRPO its maintainers say that it is not supported (ms-swift issue 3183): seven processes ran out
of memory. The memory estimate does not know unsloth's kernels.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT, Flaw, View, fatal_flaw

DOMAIN = SWIFT


def check(view: View) -> Flaw | None:
    """tuner_backend with an algorithm that rolls out."""
    launch = view.launch
    unsloth = launch.options.get("tuner_backend") == "unsloth"
    if not unsloth:
        return None
    return fatal_flaw(
        headline="ms-swift does not train GRPO through unsloth",
        evidence=("ms-swift issue 3183; the memory estimate does not apply to it",),
        fixes=("--tuner_backend peft",),
        source=launch.option_sources.get("tuner_backend"),
    )
