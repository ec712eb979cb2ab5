"""verl has no micro batch.

Without use_dynamic_bsz verl needs the micro batch of the actor and that of the log-probs, and
refuses to start without: its configuration has no default for either.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import VERL, Flaw, View, fatal_flaw

DOMAIN = replace(VERL, whole=True)
_KEYS = (
    ("actor_rollout_ref.actor.ppo_micro_batch_size", "the actor"),
    ("actor_rollout_ref.rollout.log_prob_micro_batch_size", "the rollout's log-probs"),
)


def check(view: View) -> Flaw | None:
    """Both micro batches, in either spelling."""
    if view.value("train.dynamic_batch"):
        return None
    if not view.launch.subcommand.endswith("main_ppo"):
        return None
    options = view.launch.options
    lacking = [
        (key, owner)
        for key, owner in _KEYS
        if options.get(f"{key}_per_gpu") is None and options.get(key) is None
    ]
    if not lacking:
        return None
    return fatal_flaw(
        headline=f"no micro batch for {' and '.join(owner for _, owner in lacking)}",
        evidence=("use_dynamic_bsz is off, and these have no default",),
        fixes=(
            *(f"{key}_per_gpu=1" for key, _ in lacking),
            f"or {view.flag('train.dynamic_batch', True)}",
        ),
    )
