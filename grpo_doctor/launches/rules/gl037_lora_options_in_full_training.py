"""LoRA options in full training.

With all weights trained, lora_rank and its like are read by nobody: who wanted LoRA gets a run
that takes several times the memory.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_KNOBS = ("train.lora_rank", "train.lora_alpha", "train.lora_targets")


def check(view: View) -> Flaw | None:
    """LoRA's options where the type is full, by the launch or by default."""
    ignored = [knob for knob in _KNOBS if view.launch.settings.get(knob)]
    if not ignored or view.value("train.type") != "full":
        return None
    explicit = view.sets("train.type")
    return Flaw(
        severity="low" if explicit else "high",
        headline="all weights are trained: LoRA's options do nothing",
        evidence=(
            "full training was asked for" if explicit else "full training is the default here",
        ),
        fixes=(view.flag("train.type", "lora"), "or leave out LoRA's options"),
        source=view.source(*ignored),
    )
