"""Rollouts are older than the model by several steps.

Each rollout that waits in the queue was made by weights that are one update older. The importance
ratio of old completions leaves the clipping range, and they teach nothing.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import OPENRLHF, Flaw, View

DOMAIN = OPENRLHF
_MOST = 2


def check(view: View) -> Flaw | None:
    """The queue of asynchronous training."""
    size = view.integer("rollout.queue_size")
    if not view.value("rollout.async") or not size or size <= _MOST:
        return None
    return Flaw(
        severity="medium",
        headline=f"up to {size} rollouts wait: they are up to {size} updates old",
        evidence=(f"async_queue_size is {size}",),
        fixes=(view.flag("rollout.queue_size", 1),),
        source=view.source("rollout.queue_size"),
    )
