"""The order in which ranks answer the rows: whole groups, the same walk on every rank."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig

Key = tuple[int, int]  # which row, how many completions of it this rank makes


class GroupSampler:
    """Yields, for each rollout, the rows this rank answers and how often.

    All ranks walk through the same shuffled order. A rollout takes the next prompts of it, repeats
    each `group` times, and gives every rank the same number of completions in a row: a group may
    begin on one rank and end on the next.
    """

    def __init__(  # noqa: PLR0913 - the six numbers that shape a rollout, by name
        self, *, rows: int, per_rank: int, group: int, rank: int, ranks: int, seed: int
    ) -> None:
        self._rows = rows
        self._group = group
        self._slice = range(rank * per_rank, (rank + 1) * per_rank)
        self._prompts = ranks * per_rank // group
        self._seed = seed

    def __iter__(self) -> Iterator[list[Key]]:
        """Goes on for ever; each pass over the rows has an order of its own."""
        order = self._order()
        while True:
            chosen = [next(order) for _ in range(self._prompts)]
            copies: dict[int, int] = {}
            for position in self._slice:
                place = position // self._group
                copies[place] = copies.get(place, 0) + 1
            yield [(chosen[place], count) for place, count in copies.items()]

    def _order(self) -> Iterator[int]:
        shuffler = random.Random(self._seed)  # noqa: S311 - no secret
        while True:
            order = list(range(self._rows))
            shuffler.shuffle(order)
            yield from order


def steps_in(config: TrainerConfig, rows: int, ranks: int) -> int:
    """Counts the optimizer steps of the run: `--max_steps`, or whole passes over the rows."""
    if config.max_steps > 0:
        return config.max_steps
    prompts = ranks * config.completions_per_rank // config.num_generations
    rollouts = max(1, int(config.num_train_epochs * rows) // prompts)
    return rollouts * config.steps_per_rollout
