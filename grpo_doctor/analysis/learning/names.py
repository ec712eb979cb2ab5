"""What the frameworks call the metrics of learning: canonical to own names, the newest first.

Read from the trainers of TRL 0.15 to 1.16 (ms-swift logs TRL's names), verl 0.4 and 0.9, and from
OpenRLHF's documented log lines; the bundled trainer logs the names of TRL 1.16.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spelled:
    """A metric's key in some frameworks."""

    key: str
    frameworks: tuple[str, ...]


def _trl(key: str) -> Spelled:
    return Spelled(key, ("trl", "ms-swift", "bundled"))


def _verl(key: str) -> Spelled:
    return Spelled(key, ("verl",))


def _open(key: str) -> Spelled:
    return Spelled(key, ("openrlhf",))


METRICS: dict[str, tuple[Spelled, ...]] = {
    "reward": (
        _trl("reward"),
        # verl's `critic/rewards` has the KL penalty in it; the score is what the functions gave.
        _verl("critic/score/mean"),
        _open("rollout/reward_mean"),
        _open("reward"),
    ),
    "reward_std": (
        _trl("reward_std"),
        _verl("critic/score/std"),
        _open("rollout/reward_std"),
    ),
    "reward_missing": (_trl("rewards/missing_ratio"),),
    "zero_variance": (_trl("frac_reward_zero_std"),),
    "truncated": (
        _trl("completions/clipped_ratio"),
        _verl("response_length/clip_ratio"),
        _open("rollout/truncated_rate"),
    ),
    "length": (
        _trl("completions/mean_length"),
        _trl("completion_length"),
        _verl("response_length/mean"),
        _open("rollout/response_length_mean"),
        _open("response_length"),
    ),
    "entropy": (
        _trl("entropy"),
        _trl("entropy/mean"),
        _verl("actor/entropy"),
        _verl("actor/entropy_loss"),
        _open("entropy_loss"),
    ),
    "clip": (
        _trl("clip_ratio/region_mean"),
        _trl("clip_ratio"),
        _verl("actor/pg_clipfrac"),
        _open("ppo_clip_ratio"),
    ),
    "clip_low": (_trl("clip_ratio/low_mean"),),
    "clip_high": (_trl("clip_ratio/high_mean"),),
    # Against the reference policy; verl's `actor/ppo_kl` is against the policy that sampled.
    "kl": (_trl("kl"), _verl("actor/kl_loss"), _verl("actor/reward_kl_penalty"), _open("kl")),
    "gap": (
        _trl("sampling/sampling_logp_difference/mean"),
        _trl("rollout_correction/log_ppl_abs_diff"),
        _verl("rollout_corr/log_ppl_abs_diff"),
    ),
    "grad_norm": (_trl("grad_norm"), _verl("actor/grad_norm"), _open("actor_grad_norm")),
    "loss": (_trl("loss"), _verl("actor/pg_loss"), _open("policy_loss")),
    "eval_reward": (_trl("eval_reward"),),
    "eval_loss": (_trl("eval_loss"),),
}


def spellings(metric: str, framework: str = "unknown") -> list[str]:
    """All keys of a metric: those of this framework first, then those of others."""
    entries = METRICS[metric]
    first = [name.key for name in entries if framework in name.frameworks]
    return list(dict.fromkeys([*first, *(name.key for name in entries)]))
