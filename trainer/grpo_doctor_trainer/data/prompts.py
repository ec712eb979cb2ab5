"""Prompts as tokens, fetched by a DataLoader in the order GRPO needs: whole groups, all ranks."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.rows import Row

_Key = tuple[int, int]  # which row, how many completions of it this rank makes


@dataclass(frozen=True)
class Prompt:
    """One prompt of this rank, `copies` completions of which it makes."""

    row: Row
    text: str
    tokens: list[int]
    copies: int


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one rollout on one rank, one entry per completion to make.

    Attributes:
        rows: per completion, the row it answers.
        texts: per completion, the prompt as the model sees it.
        tokens: [completions, longest prompt], padded on the left.
        mask: the same shape, 1 where `tokens` is not padding.
    """

    rows: list[Row]
    texts: list[str]
    tokens: torch.Tensor
    mask: torch.Tensor


class PromptDataset(Dataset[Prompt]):
    """Tokenizes a row when a worker asks for it."""

    def __init__(self, rows: list[Row], tokenizer: Any, max_length: int) -> None:
        self._rows = rows
        self._tokenizer = tokenizer
        self._max_length = max_length

    def __len__(self) -> int:
        """Counts the rows."""
        return len(self._rows)

    def __getitem__(self, key: _Key) -> Prompt:
        """Gives a row with its prompt as tokens; the start of a long prompt is cut off."""
        index, copies = key
        row = self._rows[index]
        text = self._text(row)
        tokens = self._tokenizer(text, add_special_tokens=not self._tokenizer.chat_template)
        return Prompt(row, text, tokens["input_ids"][-self._max_length :], copies)

    def _text(self, row: Row) -> str:
        if not self._tokenizer.chat_template:
            return "\n".join(message["content"] for message in row.messages)
        text: str = self._tokenizer.apply_chat_template(
            row.messages, tokenize=False, add_generation_prompt=True
        )
        return text


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

    def __iter__(self) -> Iterator[list[_Key]]:
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


def prompt_loader(
    rows: list[Row], tokenizer: Any, config: TrainerConfig, *, rank: int, ranks: int
) -> Iterator[PromptBatch]:
    """Starts the DataLoader with its workers and gives its endless iterator."""
    sampler = GroupSampler(
        rows=len(rows),
        per_rank=config.completions_per_rank,
        group=config.num_generations,
        rank=rank,
        ranks=ranks,
        seed=config.seed,
    )
    workers = config.dataloader_num_workers
    loader = DataLoader(
        PromptDataset(rows, tokenizer, config.max_length),
        batch_sampler=sampler,  # torch asks for a Sampler of whole numbers
        collate_fn=_Collator(tokenizer.pad_token_id),
        num_workers=workers,
        worker_init_fn=_leave_signals_to_rank,
        prefetch_factor=config.dataloader_prefetch_factor if workers else None,
        generator=torch.Generator().manual_seed(config.seed),  # else it takes from the global one
    )
    return iter(loader)


def _leave_signals_to_rank(_worker: int) -> None:
    # torchrun signals the whole process group; the rank ends its workers itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def steps_in(config: TrainerConfig, rows: int, ranks: int) -> int:
    """Counts the optimizer steps of the run: `--max_steps`, or whole passes over the rows."""
    if config.max_steps > 0:
        return config.max_steps
    prompts = ranks * config.completions_per_rank // config.num_generations
    rollouts = max(1, int(config.num_train_epochs * rows) // prompts)
    return rollouts * config.steps_per_rollout


@dataclass(frozen=True)
class _Collator:
    pad_token: int

    def __call__(self, prompts: list[Prompt]) -> PromptBatch:
        every = [prompt for prompt in prompts for _ in range(prompt.copies)]
        longest = max(len(prompt.tokens) for prompt in every)
        tokens = torch.full((len(every), longest), self.pad_token)
        mask = torch.zeros_like(tokens)
        for line, prompt in enumerate(every):
            start = longest - len(prompt.tokens)
            tokens[line, start:] = torch.tensor(prompt.tokens)
            mask[line, start:] = 1
        return PromptBatch(
            [prompt.row for prompt in every], [prompt.text for prompt in every], tokens, mask
        )
