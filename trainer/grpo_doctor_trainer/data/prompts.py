"""Prompts as tokens, fetched by a DataLoader in the order GRPO needs: whole groups, all ranks."""

from __future__ import annotations

import atexit
import itertools
import random
import signal
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.checking import stop_message
from grpo_doctor_trainer.data.images import BadImageError
from grpo_doctor_trainer.data.making import prompt_maker
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.experience import ImageFeatures

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from PIL.Image import Image

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.making import Prompt, PromptMaker
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.model.vision import VisionLayout

_Key = tuple[int, int]  # which row, how many completions of it this rank makes


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one rollout on one rank, one entry per completion to make.

    Attributes:
        rows: per completion, the row it answers.
        texts: per completion, the prompt as the model sees it.
        tokens: [completions, longest prompt], padded on the left; an image has as many
            placeholders as embeddings, where `texts` has one.
        mask: the same shape, 1 where `tokens` is not padding.
        images: with a vision-language model, also where no prompt has one; else none.
        pictures: per completion, the images themselves, scaled to `--max_pixels`; only for vLLM,
            and only with a vision-language model.
    """

    rows: list[Row]
    texts: list[str]
    tokens: torch.Tensor
    mask: torch.Tensor
    images: ImageFeatures | None = None
    pictures: list[list[Image]] | None = None


@dataclass(frozen=True)
class Fetched:
    """What a worker sends: a batch, or what is wrong with it.

    An error raised in a worker would arrive as its traceback.

    Attributes:
        batch: none with a problem.
        problem: the message of a DatasetError.
        skipped: images met that could not be read, whose rows others stood in for.
        cut: prompts that lost their start.
    """

    batch: PromptBatch | None
    problem: str | None
    skipped: tuple[str, ...]
    cut: int


@dataclass(frozen=True)
class Failure:
    """A row that ends the run, with the message."""

    message: str


class PromptDataset(Dataset["Made | Failure"]):
    """Makes the prompt of a row when a worker asks for it."""

    def __init__(self, rows: list[Row], maker: PromptMaker, *, skips_bad_images: bool) -> None:
        self._rows = rows
        self._maker = maker
        self._tries = len(rows) if skips_bad_images else 1

    def __len__(self) -> int:
        """Counts the rows."""
        return len(self._rows)

    def __getitem__(self, key: _Key) -> Made | Failure:
        """Gives a row's prompt; the next row's if its images turn out to be damaged.

        Every rank that has completions of this prompt finds the same damage, and the same next row.
        """
        index, copies = key
        skipped: list[str] = []
        for place in range(index, index + self._tries):
            row = self._rows[place % len(self._rows)]
            try:
                return Made(self._maker.make(row, copies), tuple(skipped))
            except BadImageError as error:
                skipped.append(str(error))
            except DatasetError as error:
                return Failure(str(error))
        return Failure(stop_message(skipped[0]))


@dataclass(frozen=True)
class Made:
    """A prompt, and the damaged images met on the way to it."""

    prompt: Prompt
    skipped: tuple[str, ...]


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

    `skip` rollouts have had their prompts before a checkpoint; nothing is fetched for them.

    Raises:
        DatasetError: rows have images and the model takes none. The iterator raises it too: an
            image is damaged behind its header, or a prompt with images is too long.
        ConfigError: no room for a prompt.
    """
    with_images = next((row for row in rows if row.images), None)
    if loaded.vision is None and with_images is not None:
        raise DatasetError(
            f"{with_images.place} has an image, and --model {config.model or '(embedded)'} takes "
            "none: choose a vision-language model, or take the column images out"
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
        collate_fn=_Collator(
            loaded.tokenizer.pad_token_id, loaded.vision, keeps_pictures=config.use_vllm
        ),
        num_workers=workers,
        worker_init_fn=_leave_signals_to_rank,
        prefetch_factor=config.dataloader_prefetch_factor if workers else None,
        generator=torch.Generator().manual_seed(config.seed),  # else it takes from the global one
    )
    batches: Any = iter(loader)
    if workers:
        # They ignore the signal by which an interpreter that ends with a traceback stops its
        # children, and it would wait for them for ever.
        atexit.register(_end_workers, weakref.ref(batches))
    return _delivered(batches)


def _end_workers(batches: weakref.ref[Any]) -> None:
    if (alive := batches()) is not None:
        alive._shutdown_workers()  # noqa: SLF001 - there is no public way


def _delivered(fetched: Iterator[Fetched]) -> Generator[PromptBatch, None, None]:
    """Says what the workers could not, each thing once."""
    told: set[str] = set()
    warned = False
    for found in fetched:
        for text in found.skipped:
            if text not in told:
                LOG.warning("skipped %s; the next row stands in for it", text)
        told.update(found.skipped)
        if found.cut and not warned:
            warned = True
            LOG.warning(
                "%d of this rollout's prompts are longer than --max_length or the model's context "
                "allow and lost their start; said once", found.cut,
            )  # fmt: skip
        if found.batch is None:
            raise DatasetError(str(found.problem))
        yield found.batch


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
    layout: VisionLayout | None
    keeps_pictures: bool

    def __call__(self, found: list[Made | Failure]) -> Fetched:
        skipped = tuple(text for made in found if isinstance(made, Made) for text in made.skipped)
        for failure in found:
            if isinstance(failure, Failure):
                return Fetched(None, failure.message, skipped, 0)
        prompts = [made.prompt for made in found if isinstance(made, Made)]
        cut = sum(prompt.cut > 0 for prompt in prompts)
        return Fetched(self._batch(prompts), None, skipped, cut)

    def _batch(self, prompts: list[Prompt]) -> PromptBatch:
        every = [prompt for prompt in prompts for _ in range(prompt.copies)]
        longest = max(len(prompt.tokens) for prompt in every)
        tokens = torch.full((len(every), longest), self.pad_token)
        mask = torch.zeros_like(tokens)
        for line, prompt in enumerate(every):
            start = longest - len(prompt.tokens)
            tokens[line, start:] = torch.tensor(prompt.tokens)
            mask[line, start:] = 1
        return PromptBatch(
            [prompt.row for prompt in every],
            [prompt.text for prompt in every],
            tokens,
            mask,
            self._images(prompts, longest),
            [prompt.vision.pictures if prompt.vision else [] for prompt in every]
            if self.keeps_pictures and self.layout
            else None,
        )

    def _images(self, prompts: list[Prompt], longest: int) -> ImageFeatures | None:
        if self.layout is None:
            return None
        parts = [prompt.vision for prompt in prompts if prompt.vision is not None]
        indices: list[tuple[int, ...]] = []
        positions = []
        first = 0
        for prompt, part in zip(prompts, parts, strict=True):
            count = len(part.grid_thw)
            indices += [tuple(range(first, first + count))] * prompt.copies
            padded = pad(part.positions, (longest - part.positions.size(1), 0))
            positions.append(padded.expand(prompt.copies, -1, -1))
            first += count
        return ImageFeatures(
            torch.cat([part.pixel_values for part in parts]),
            torch.cat([part.grid_thw for part in parts]),
            tuple(indices),
            torch.cat(positions),
            self.layout,
        )
