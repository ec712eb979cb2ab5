"""Group-relative advantages: how much better a completion is than its siblings."""

from __future__ import annotations

import torch

_EPSILON = 1e-4  # TRL's, so that equal rewards give zero and not a division by zero


def group_advantages(rewards: torch.Tensor, group_size: int, scale: str) -> torch.Tensor:
    """Subtracts the mean of each group and divides by a standard deviation.

    A completion without a reward (NaN: no function applied to it) is left out of its group's mean
    and deviation, and gets the advantage 0, as in TRL 1.16.

    Args:
        rewards: [groups x group_size], the completions of a group in a row.
        group_size: completions per prompt.
        scale: `group` divides by the deviation in the group, `batch` by that over all rewards,
            `none` does not divide.

    Returns:
        [groups x group_size], the advantages.

    Source:
        DeepSeekMath (arXiv 2402.03300), equation 3 with outcome supervision; `none` is Dr. GRPO
        (arXiv 2503.20783).
    """
    groups = rewards.view(-1, group_size)
    centered = groups - groups.nanmean(dim=1, keepdim=True)
    if scale == "group":
        centered = centered / (deviation(groups, dim=1).unsqueeze(1) + _EPSILON)
    elif scale == "batch":
        centered = centered / (deviation(rewards) + _EPSILON)
    return centered.view(-1).nan_to_num(nan=0.0)


def deviation(values: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Gives the sample standard deviation of what is not NaN; NaN for fewer than two values.

    Args:
        values: [..., any], NaN where there is no value.
        dim: over which to take it.
    """
    counts = (~values.isnan()).sum(dim=dim)
    squares = (values - values.nanmean(dim=dim, keepdim=True)).square().nansum(dim=dim)
    variance: torch.Tensor = squares / (counts - 1)
    return torch.where(counts > 1, variance, torch.nan).sqrt()


def groups_without_signal(rewards: torch.Tensor, group_size: int) -> float:
    """Gives the share of groups that teach nothing: all rewards are equal, or but one is missing.

    With `--scale_rewards batch` TRL gives 0 or 1 here, for the deviation of the whole batch.

    Args:
        rewards: [groups x group_size], NaN for those without a reward.
        group_size: completions per prompt.
    """
    spread = deviation(rewards.view(-1, group_size), dim=1)
    return float((~(spread > 1e-8)).float().mean())
