"""The disk does not hold the checkpoints.

A checkpoint of a full run holds weights and optimizer state: 14 to 16 bytes for each parameter,
100 GB for a 7B; of a LoRA run a few hundred megabytes. Without save_total_limit every one is
kept.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES
_FULL_BYTES = 14  # weights in 2, master weights and two moments in 12
_WEIGHTS_BYTES = 2


def check(view: View) -> Flaw | None:
    """What the kept checkpoints take, against the free disk."""
    free, model = view.host.free_disk_bytes, view.model
    if not free or model is None:
        return None
    if view.value("train.type") == "lora" or (view.value("checkpoint.save_steps") or 0) <= 0:
        return None
    alone = bool(view.value("checkpoint.save_only_model"))
    size = model.parameters * (_WEIGHTS_BYTES if alone else _FULL_BYTES)
    limit = view.integer("checkpoint.save_total_limit")
    needed = size * (limit + 1 if limit else 2)
    if needed <= free:
        return None
    fixes = [view.flag("checkpoint.save_total_limit", 1)] if limit != 1 else []
    if not alone:
        fixes.append(view.flag("checkpoint.save_only_model", True))
    return Flaw(
        severity="high" if size > free else "medium",
        headline=f"a checkpoint takes {size / 1e9:.0f} GB, but {free / 1e9:.0f} GB are free",
        evidence=(
            f"{limit} are kept, and one is being written" if limit else "all of them are kept",
        ),
        fixes=(*fixes, "or another checkpoint directory"),
        source=view.source("checkpoint.save_steps", "checkpoint.directory"),
    )
