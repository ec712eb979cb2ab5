"""verl cannot hand its batch to all GPUs.

verl divides train_batch_size x n completions over all GPUs and refuses to start where they do not
divide it.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_VERL, Flaw, View, fatal_flaw

DOMAIN = PLAIN_VERL
_MOST = 4096  # prompts more that are tried


def check(view: View) -> Flaw | None:
    """Completions of a step over GPUs."""
    prompts, group = view.integer("rollout.prompts"), view.integer("rollout.num_generations")
    ranks = view.processes
    if not prompts or not group or not ranks:
        return None
    if view.value("train.dynamic_batch") or prompts * group % ranks == 0:
        return None
    valid = [
        prompts + more
        for more in range(1, min(ranks, _MOST) + 1)
        if (prompts + more) * group % ranks == 0
    ]
    return fatal_flaw(
        headline=f"{prompts * group} completions are not divisible by {ranks} GPUs",
        evidence=(f"{prompts} prompts x {group} completions; {ranks} GPUs",),
        fixes=(view.flag("rollout.prompts", valid[0]),) if valid else (),
        source=view.source("rollout.prompts"),
    )
