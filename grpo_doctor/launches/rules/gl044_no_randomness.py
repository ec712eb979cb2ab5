"""Completions of a group are all the same.

With temperature 0 every completion of a prompt is the same, so are their rewards, and every
advantage is 0: nothing is learned.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """Sampling that can give one completion only."""
    temperature, top_k = view.value("rollout.temperature"), view.value("rollout.top_k")
    if temperature != 0 and top_k != 1:
        return None
    knob = "rollout.temperature" if temperature == 0 else "rollout.top_k"
    return Flaw(
        severity="high",
        headline="all completions of a prompt are the same: every advantage is 0",
        evidence=(f"temperature {temperature}, top_k {top_k}",),
        fixes=(view.flag(knob, 1.0 if temperature == 0 else -1),),
        source=view.source(knob),
    )
