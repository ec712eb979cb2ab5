"""A reference model without a KL term.

The reference model is needed for the KL term alone. With beta 0 it is not loaded, and what is
said of it, or of keeping it in step, does nothing.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import LIKE_TRL, Flaw, View

DOMAIN = LIKE_TRL


def check(view: View) -> Flaw | None:
    """Options of the reference model with beta 0."""
    ignored = [k for k in ("model.reference", "sync.ref_model") if view.launch.settings.get(k)]
    if not ignored or view.value("train.beta") != 0:
        return None
    return Flaw(
        severity="low",
        headline="the reference model is not used: beta is 0",
        evidence=("no KL term, no reference",),
        fixes=(view.flag("train.beta", 0.04), "or leave the reference's options out"),
        source=view.source(*ignored),
    )
