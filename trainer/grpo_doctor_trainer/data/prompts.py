"""Prompts as tokens, fetched by a DataLoader in the order GRPO needs: whole groups, all ranks."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset

from grpo_doctor_probes import counter
from grpo_doctor_trainer.data.batch import Collator, Failure, Made
from grpo_doctor_trainer.data.checking import stop_message
from grpo_doctor_trainer.data.images import BadImageError
from grpo_doctor_trainer.data.making import prompt_maker
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.logs.console import LOG

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import Fetched, PromptBatch
    from grpo_doctor_trainer.data.making import PromptMaker
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.model.load import LoadedModel


Key = tuple[int, int]  # which row, how many completions of it this rank makes


class PromptDataset(Dataset["Made | Failure"]):
    """Makes the prompt of a row when a worker asks for it."""

    def __init__(self, rows: list[Row], maker: PromptMaker, *, skips_bad_images: bool) -> None:
        self._rows = rows
        self._maker = maker
        self._tries = len(rows) if skips_bad_images else 1

    def __len__(self) -> int:
        """Counts the rows."""
        return len(self._rows)

    def __getitem__(self, key: Key) -> Made | Failure:
        """Gives a row's prompt; the next row's if its images turn out to be damaged.

        Every rank that has completions of this prompt finds the same damage, and the same next row.
        """
        index, copies = key
        skipped: list[str] = []
        for number in range(index, index + self._tries):
            row = self._rows[number % len(self._rows)]
            try:
                return Made(self._maker.make(row, copies), tuple(skipped))
            except BadImageError as error:
                skipped.append(str(error))
            except DatasetError as error:
                return Failure(str(error))
        return Failure(stop_message(skipped[0]))


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
            copies = Counter(position // self._group for position in self._slice)
            yield [(chosen[prompt], count) for prompt, count in copies.items()]

    def _order(self) -> Iterator[int]:
        shuffler = random.Random(self._seed)  # noqa: S311 - no secret
        while True:
            order = list(range(self._rows))
            shuffler.shuffle(order)
            yield from order


def steps_in(config: TrainerConfig, rows: int, ranks: int) -> int:
    """Counts the optimizer steps of the run: `--max_steps`, or whole passes over the rows.

    Args:
        config: the options.
        rows: of the dataset.
        ranks: how many there are.
    """
    if config.max_steps > 0:
        return config.max_steps
    prompts = ranks * config.completions_per_rank // config.num_generations
    rollouts = max(1, int(config.num_train_epochs * rows) // prompts)
    return rollouts * config.steps_per_rollout


def prompt_loader(  # noqa: PLR0913 - who asks, and from where on
    rows: list[Row],
    loaded: LoadedModel,
    config: TrainerConfig,
    *,
    rank: int,
    ranks: int,
    skip: int = 0,
) -> Generator[PromptBatch, None, None]:
    """Starts the DataLoader with its workers and gives its endless iterator.

    Args:
        rows: of the dataset, the same on every rank.
        loaded: the model, with its tokenizer.
        config: the options.
        rank: this process.
        ranks: how many there are.
        skip: rollouts that had their prompts before a checkpoint; nothing is fetched for them.

    Raises:
        DatasetError: rows have images and the model takes none. The iterator raises it too: an
            image is damaged behind its header, or a prompt with images is too long.
        ConfigError: no room for a prompt.
    """
    with_images = next((row for row in rows if row.images), None)
    if loaded.vision is None and with_images is not None:
        raise DatasetError(
            f"{with_images.location} has an image, and --model {config.model or '(embedded)'} "
            "takes none: choose a vision-language model, or take the column images out"
        )
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
        PromptDataset(
            rows, prompt_maker(loaded, config), skips_bad_images=config.on_bad_image == "skip"
        ),
        batch_sampler=itertools.islice(sampler, skip, None),  # torch takes any iterable
        collate_fn=Collator(
            loaded.tokenizer.pad_token_id, loaded.vision, keeps_pictures=config.use_vllm
        ),
        num_workers=workers,
        worker_init_fn=_leave_signals_to_rank,
        prefetch_factor=config.dataloader_prefetch_factor if workers else None,
        generator=torch.Generator().manual_seed(config.seed),  # else it takes from the global one
    )
    return _delivered(iter(loader))


def _delivered(fetched: Iterator[Fetched]) -> Generator[PromptBatch, None, None]:
    """Says what the workers could not, each text once."""
    logged: set[str] = set()
    warned = False
    for fetch in fetched:
        for name, value in fetch.effort.items():
            counter(f"dataload/{name}", value)
        for text in fetch.skipped:
            if text not in logged:
                LOG.warning("skipped %s; the next row stands in for it", text)
        logged.update(fetch.skipped)
        if fetch.cut and not warned:
            warned = True
            LOG.warning(
                "%d of this rollout's prompts are longer than --max_length or the model's context "
                "allow and lost their start; said once", fetch.cut,
            )  # fmt: skip
        if fetch.batch is None:
            raise DatasetError(str(fetch.problem))
        counter("rollout/prompt_tokens", float(fetch.batch.mask.sum()))
        yield fetch.batch


def _leave_signals_to_rank(_worker: int) -> None:
    # Ctrl-C and torchrun signal the whole process group; what becomes of the job the rank decides.
    # A worker that dies of a signal would be an error there, so it leaves quietly, with 0.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
