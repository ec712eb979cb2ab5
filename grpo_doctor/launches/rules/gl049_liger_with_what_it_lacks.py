"""The Liger loss does not take this.

ms-swift's Liger loss for GRPO works on padded batches of whole sequences: it refuses
padding_free, sequence parallelism, a two-sided delta and an entropy mask.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_SWIFT, Flaw, View, fatal_flaw

DOMAIN = PLAIN_SWIFT


def check(view: View) -> Flaw | None:
    """Settings that the fused loss refuses."""
    if not view.at_least("4.0.0"):
        return None
    if not view.launch.settings.get("train.use_liger"):
        return None
    refused = {
        "train.padding_free": bool(view.value("train.padding_free")),
        "parallel.context": view.degree("parallel.context") > 1,
        "train.delta": view.value("train.delta") is not None,
        "train.top_entropy_quantile": (view.value("train.top_entropy_quantile") or 1.0) < 1.0,
    }
    knobs = [knob for knob, refuses in refused.items() if refuses]
    if not knobs:
        return None
    return fatal_flaw(
        headline="the Liger loss does not take "
        + " and ".join(view.flag(knob, view.value(knob)) for knob in knobs),
        evidence=("ms-swift refuses the pair",),
        fixes=("--use_liger_kernel false", "or leave the other out"),
        source=view.source(*knobs),
    )
