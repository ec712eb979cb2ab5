"""Group-relative advantages: how much better a completion is than its siblings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_EPSILON = 1e-4  # TRL's, so that equal rewards give zero and not a division by zero


def group_advantages(rewards: torch.Tensor, group_size: int, scale: str) -> torch.Tensor:
    """Subtracts the mean of each group and divides by a standard deviation.

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
    centered = groups - groups.mean(dim=1, keepdim=True)
    if scale == "group":
        centered = centered / (groups.std(dim=1, keepdim=True) + _EPSILON)
    elif scale == "batch":
        centered = centered / (rewards.std() + _EPSILON)
    return centered.view(-1)


def groups_without_signal(rewards: torch.Tensor, group_size: int) -> float:
    """Gives the share of groups in which all rewards are equal: they teach nothing."""
    spread = rewards.view(-1, group_size).std(dim=1)
    return float((spread < 1e-8).float().mean())
