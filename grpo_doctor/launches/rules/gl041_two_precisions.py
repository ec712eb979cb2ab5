"""bf16 and fp16 at once.

Mixed precision computes in one of the two; transformers refuses both.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View, fatal_flaw

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """Both flags."""
    if not (view.launch.settings.get("train.bf16") and view.launch.settings.get("train.fp16")):
        return None
    return fatal_flaw(
        headline="bf16 and fp16 are both on",
        evidence=("at most one can be true",),
        fixes=("--fp16 false",),
        source=view.source("train.fp16"),
    )
