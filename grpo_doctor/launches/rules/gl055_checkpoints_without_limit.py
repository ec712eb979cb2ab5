"""Every checkpoint is kept.

Without save_total_limit each checkpoint stays. Of a full run each holds optimizer state: 14 to 16
bytes for each parameter.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import NOT_OPENRLHF, Flaw, View

DOMAIN = NOT_OPENRLHF
_MANY_BYTES = 30e9
_FULL_BYTES = 14


def check(view: View) -> Flaw | None:
    """Large checkpoints without a limit."""
    model = view.model
    if model is None:
        return None
    if view.value("train.type") == "lora" or view.value("checkpoint.save_only_model"):
        return None
    if (
        view.integer("checkpoint.save_total_limit")
        or (view.value("checkpoint.save_steps") or 0) <= 0
    ):
        return None
    size = model.parameters * _FULL_BYTES
    if size < _MANY_BYTES:
        return None
    return Flaw(
        severity="low",
        headline=f"each checkpoint takes {size / 1e9:.0f} GB, and all are kept",
        evidence=("weights and optimizer state, 14 bytes for each parameter",),
        fixes=(
            view.flag("checkpoint.save_total_limit", 2),
            view.flag("checkpoint.save_only_model", True),
        ),
        source=view.source("checkpoint.save_steps"),
    )
