"""One outcome for all ranks: an error of one is raised on each, before any waits for it in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import distributed as dist

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.ranks.group import worst_on_any_rank

if TYPE_CHECKING:
    from grpo_doctor_trainer.ranks.group import Ranks


def raise_together(message: str | None, ranks: Ranks) -> None:
    """Raises this rank's error, or that of the first rank that has one. A collective.

    Takes a message and not an exception: one that is kept in a variable holds on to all callers'
    variables, and with them to the workers of the data loader, which then outlive the run.

    Args:
        message: what went wrong on this rank, if anything did.
        ranks: this process among the others.

    Raises:
        RolloutError: something went wrong on any rank.
    """
    if ranks.world_size > 1 and worst_on_any_rank(message is not None, ranks):
        messages: list[str | None] = [None] * ranks.world_size
        dist.all_gather_object(messages, message)
        message = message or next(filter(None, messages))
    if message is not None:
        raise RolloutError(message)
