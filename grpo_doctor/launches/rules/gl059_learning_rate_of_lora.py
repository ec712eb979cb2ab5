"""A learning rate of LoRA in full training.

LoRA is trained at 1e-5 to 1e-4. With all weights trained, reinforcement learning falls apart
above about 1e-5; 1e-6 is usual.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_MOST = 1e-5


def check(view: View) -> Flaw | None:
    """The learning rate where all weights are trained."""
    rate = view.launch.settings.get("train.learning_rate")
    if not isinstance(rate, float) or rate <= _MOST:
        return None
    if view.value("train.type") != "full":
        return None
    return Flaw(
        severity="low",
        headline=f"a learning rate of {rate:g} with all weights trained",
        evidence=("1e-6 is usual; above 1e-5 training usually diverges",),
        fixes=(view.flag("train.learning_rate", 1e-6),),
        source=view.source("train.learning_rate"),
    )
