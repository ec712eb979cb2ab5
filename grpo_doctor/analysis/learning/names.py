"""What the frameworks call the metrics of learning: canonical name to own name and version range.

Read from the trainers of TRL 0.15 to 1.16 (ms-swift logs TRL's names), verl 0.4 and 0.9, and from
OpenRLHF's documented log lines; the bundled trainer logs the names of TRL 1.16.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.knobs.model import version_of


@dataclass(frozen=True, slots=True)
class Spelled:
    """A metric's key in some frameworks; `since` and `until` (first without) are of TRL or verl."""

    key: str
    frameworks: tuple[str, ...]
    since: str | None = None
    until: str | None = None

    def covers(self, framework: str, version: str | None) -> bool:
        """Return whether this version of the framework logs the key, as far as that is known."""
        if framework not in self.frameworks:
            return False
        own, release = self.frameworks[0] == framework, version_of(version)
        if release is None or not own:
            return True
        begins, ends = version_of(self.since), version_of(self.until)
        return (begins is None or release >= begins) and (ends is None or release < ends)


def _trl(key: str, since: str | None = None, until: str | None = None) -> Spelled:
    return Spelled(key, ("trl", "ms-swift", "bundled"), since, until)


def _verl(key: str) -> Spelled:
    return Spelled(key, ("verl",))


def _open(key: str, since: str | None = None, until: str | None = None) -> Spelled:
    return Spelled(key, ("openrlhf",), since, until)


METRICS: dict[str, tuple[Spelled, ...]] = {
    "reward": (
        _trl("reward"),
        # verl's `critic/rewards` has the KL penalty in it; the score is what the functions gave.
        _verl("critic/score/mean"),
        _open("rollout/reward_mean", since="0.10.0"),
        _open("reward", until="0.10.0"),
    ),
    "reward_std": (
        _trl("reward_std"),
        _verl("critic/score/std"),
        _open("rollout/reward_std", since="0.10.0"),
    ),
    "reward_missing": (_trl("rewards/missing_ratio"),),
    "zero_variance": (_trl("frac_reward_zero_std", since="0.19.0"),),
    "truncated": (
        _trl("completions/clipped_ratio", since="0.17.0"),
        _verl("response_length/clip_ratio"),
        _open("rollout/truncated_rate", since="0.10.0"),
    ),
    "length": (
        _trl("completions/mean_length", since="0.17.0"),
        _trl("completion_length", until="0.17.0"),
        _verl("response_length/mean"),
        _open("rollout/response_length_mean", since="0.10.0"),
        _open("response_length", until="0.10.0"),
    ),
    "entropy": (
        _trl("entropy", since="0.20.0"),
        _trl("entropy/mean"),
        _verl("actor/entropy"),
        _verl("actor/entropy_loss"),
        _open("entropy_loss"),
    ),
    "clip": (
        _trl("clip_ratio/region_mean", since="0.18.0"),
        _trl("clip_ratio", until="0.18.0"),
        _verl("actor/pg_clipfrac"),
        _open("ppo_clip_ratio"),
    ),
    "clip_low": (_trl("clip_ratio/low_mean", since="0.18.0"),),
    "clip_high": (_trl("clip_ratio/high_mean", since="0.18.0"),),
    # Against the reference policy; verl's `actor/ppo_kl` is against the policy that sampled.
    "kl": (_trl("kl"), _verl("actor/kl_loss"), _verl("actor/reward_kl_penalty"), _open("kl")),
    "gap": (
        _trl("sampling/sampling_logp_difference/mean", since="0.21.0"),
        _trl("rollout_correction/log_ppl_abs_diff"),
        _verl("rollout_corr/log_ppl_abs_diff"),
    ),
    "grad_norm": (_trl("grad_norm"), _verl("actor/grad_norm"), _open("actor_grad_norm")),
    "loss": (_trl("loss"), _verl("actor/pg_loss"), _open("policy_loss")),
    "eval_reward": (_trl("eval_reward"),),
    "eval_loss": (_trl("eval_loss"),),
}


def spellings(metric: str, framework: str = "unknown", version: str | None = None) -> list[str]:
    """All keys of a metric: those of this framework and version first, then those of others."""
    entries = METRICS[metric]
    first = [name.key for name in entries if name.covers(framework, version)]
    return list(dict.fromkeys([*first, *(name.key for name in entries)]))
