"""Sequences are longer than the model can read.

A model has positions for so many tokens and no more, unless its RoPE is scaled. vLLM refuses a
max_model_len above that; beyond it text is noise.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View

DOMAIN = EVERY_COMMAND


def check(view: View) -> Flaw | None:
    """Lengths against the model's positions."""
    context = view.model.max_positions if view.model else None
    if (
        not context
        or "rope_scaling" in view.launch.options
        or "hf_overrides" in view.launch.options
    ):
        return None
    knob = "vllm.max_model_len"
    length = view.launch.settings.get(knob)
    if not isinstance(length, int) or length <= context:
        knob, length = "rollout.max_completion_length", view.length or view.completion
    if length is None or length <= context:
        return None
    return Flaw(
        severity="high",
        headline=f"{length} tokens are more than the {context} positions of the model",
        evidence=(f"the model has {context} positions",),
        fixes=(view.flag(knob, context if knob.startswith("vllm") else context // 2),),
        source=view.source(knob),
        ends=knob.startswith("vllm"),
    )
