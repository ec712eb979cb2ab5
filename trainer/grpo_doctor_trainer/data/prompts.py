"""Prompts as tokens and pixels, fetched by a DataLoader in the order GRPO needs."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL.Image import Image
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

from grpo_doctor_probes import counter
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.experience import ImageFeatures
from grpo_doctor_trainer.data.rows import BadImageError, Row, describe_image, read_image
from grpo_doctor_trainer.errors import ConfigError, DatasetError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.vision import VisionLayout, rope_positions
from grpo_doctor_trainer.ranks import Ranks

Key = tuple[int, int]  # which row, how many completions of it this rank makes


@dataclass(frozen=True)
class Prompt:
    """One prompt of this rank, `copies` completions of which it makes.

    Attributes:
        text: after the chat template, with one placeholder per image.
        tokens: with as many placeholders as each image has embeddings.
        effort: what it took to make, by the names of the counters: seconds of reading images, of
            cutting them into patches and of tokenizing, and their sizes.
        cut: whether it lost its start.
        pixel_values: [patches of its images, values of a patch], with a vision-language model.
        grid_thw: [images, 3].
        positions: [3, tokens].
        pictures: the images themselves, for an engine that needs them.
    """

    row: Row
    text: str
    tokens: list[int]
    copies: int
    effort: dict[str, float]
    cut: bool = False
    pixel_values: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    grid_thw: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 3, dtype=torch.long))
    positions: torch.Tensor = field(default_factory=lambda: torch.zeros(3, 0, dtype=torch.long))
    pictures: list[Image] = field(default_factory=list)


@dataclass(frozen=True)
class PromptBatch:
    """The prompts of one rollout on one rank, one entry per completion to make.

    Attributes:
        rows: per completion, the row it answers.
        texts: per completion, the prompt as the model sees it.
        tokens: [completions, longest prompt], padded on the left; an image has as many
            placeholders as embeddings, where `texts` has one.
        mask: the same shape, 1 where `tokens` is not padding.
        images: with a vision-language model, also where no prompt has one; else None.
        pictures: per completion, the images themselves, scaled to `--max_pixels`; only for vLLM,
            and only with a vision-language model.
        cut: prompts that lost their start.
        effort: what making it took a worker, by the names of the counters.
    """

    rows: list[Row]
    texts: list[str]
    tokens: torch.Tensor
    mask: torch.Tensor
    images: ImageFeatures | None = None
    pictures: list[list[Image]] | None = None
    cut: int = 0
    effort: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptMaker:
    """Makes prompts and joins them; is sent to the DataLoader's workers.

    Attributes:
        tokenizer: with the chat template, if there is one.
        limit: the most tokens of a prompt.
        image_processor: None, as the layout, with a model that takes no images.
        max_pixels: the largest area of an image.
        keeps_pictures: whether prompts carry the images themselves too.
    """

    tokenizer: Any
    limit: int
    image_processor: Any = None
    layout: VisionLayout | None = None
    max_pixels: int | None = None
    keeps_pictures: bool = False

    @classmethod
    def of(cls, loaded: LoadedModel, config: TrainerConfig) -> PromptMaker:
        """Gather what prompts of a run are made with."""
        return cls(
            loaded.tokenizer,
            prompt_limit(config, loaded.context),
            loaded.processor.image_processor if loaded.processor else None,
            loaded.vision,
            config.max_pixels,
            keeps_pictures=config.use_vllm,
        )

    def make(self, row: Row, copies: int) -> Prompt:
        """Make one prompt; text that is too long loses its start."""
        began = time.perf_counter()
        text = self._text(row)
        ids = self.tokenizer(text, add_special_tokens=not self.tokenizer.chat_template)["input_ids"]
        tokenized = time.perf_counter()
        effort = dict.fromkeys(("read_s", "process_s", "images", "decoded_pixels", "pixels"), 0.0)
        effort |= {"tokenize_s": tokenized - began, "image_tokens": 0.0}
        layout = self.layout
        if layout is None:
            cut = len(ids) > self.limit
            return Prompt(row, text, ids[-self.limit :], copies, effort, cut)
        decoded = [self._read(row, number) for number in range(1, len(row.images) + 1)]
        pictures = [picture for picture, _ in decoded]
        read = time.perf_counter()
        pixels, grid = self._processed(row, pictures, layout)
        processed = time.perf_counter()
        tokens = _expanded(row, ids, grid.tolist(), layout)
        image_tokens = tokens.count(layout.image_token)
        cut = len(tokens) > self.limit
        if cut and pictures:
            raise DatasetError(
                f"{row.location}: the prompt has {len(tokens)} tokens, {image_tokens} of them for "
                f"its {len(pictures)} images, and {self.limit} at most fit; a prompt with images "
                "cannot be cut. Make images smaller with --max_pixels, raise --max_length, lower "
                "--max_completion_length if the model's context is the limit, or remove the row"
            )
        tokens = tokens[-self.limit :]
        effort |= {
            "read_s": read - tokenized,
            "process_s": processed - read,
            "images": len(pictures),
            "decoded_pixels": sum(pixels for _, pixels in decoded),
            "pixels": sum(picture.width * picture.height for picture in pictures),
            "image_tokens": image_tokens,
        }
        positions = rope_positions(tokens, grid.tolist(), layout)
        kept = pictures if self.keeps_pictures else []
        return Prompt(row, text, tokens, copies, effort, cut, pixels, grid, positions, kept)

    def join(self, prompts: list[Prompt | str]) -> PromptBatch | str:
        """Return the batch, or the first problem."""
        problem = next((each for each in prompts if isinstance(each, str)), None)
        if problem is not None:
            return problem
        began = time.perf_counter()
        made = [prompt for prompt in prompts if not isinstance(prompt, str)]
        every = [prompt for prompt in made for _ in range(prompt.copies)]
        longest = max(len(prompt.tokens) for prompt in every)
        tokens = torch.full((len(every), longest), self.tokenizer.pad_token_id)
        mask = torch.zeros_like(tokens)
        for line, prompt in enumerate(every):
            start = longest - len(prompt.tokens)
            tokens[line, start:] = torch.tensor(prompt.tokens)
            mask[line, start:] = 1
        images = None if self.layout is None else _images(made, longest, self.layout)
        effort = {name: float(sum(p.effort[name] for p in made)) for name in made[0].effort}
        return PromptBatch(
            [prompt.row for prompt in every],
            [prompt.text for prompt in every],
            tokens,
            mask,
            images,
            [p.pictures for p in every] if self.keeps_pictures and self.layout else None,
            sum(prompt.cut for prompt in made),
            effort | {"join_s": time.perf_counter() - began},
        )

    def _text(self, row: Row) -> str:
        if self.tokenizer.chat_template:
            text: str = self.tokenizer.apply_chat_template(
                row.messages, tokenize=False, add_generation_prompt=True
            )
            return text
        mark = self.layout and self.tokenizer.convert_ids_to_tokens(self.layout.image_token)
        texts = []
        for message in row.messages:
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts.append("".join(p["text"] if p["type"] == "text" else str(mark) for p in parts))
        return "\n".join(texts)

    def _read(self, row: Row, number: int) -> tuple[Image, int]:
        try:
            return read_image(row.images[number - 1], self.max_pixels)
        except BadImageError as error:
            raise DatasetError(describe_image(row, number, str(error))) from error

    def _processed(
        self, row: Row, pictures: list[Image], layout: VisionLayout
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not pictures:
            return torch.zeros(0, layout.patch_values), torch.zeros(0, 3, dtype=torch.long)
        try:
            processed = self.image_processor(images=pictures, return_tensors="pt")
        except ValueError as error:  # such as sides of too different lengths
            raise DatasetError(f"{row.location}: its images: {error}") from error
        return processed["pixel_values"], processed["image_grid_thw"]


def _expanded(row: Row, ids: list[int], grids: list[list[int]], layout: VisionLayout) -> list[int]:
    """Give each image as many placeholders as it has embeddings."""
    if ids.count(layout.image_token) != len(grids):
        raise DatasetError(
            f"{row.location}: the prompt has {ids.count(layout.image_token)} "
            f"places for {len(grids)} images after the model's chat template; write images as "
            '<image> or {"type": "image"}, and not as the model\'s own tokens'
        )
    remaining = iter(grids)
    counts = (layout.image_tokens(next(remaining)) if t == layout.image_token else 1 for t in ids)
    return [token for token, count in zip(ids, counts, strict=True) for _ in range(count)]


def _images(prompts: list[Prompt], longest: int, layout: VisionLayout) -> ImageFeatures:
    indices: list[tuple[int, ...]] = []
    positions, first = [], 0
    for prompt in prompts:
        count = len(prompt.grid_thw)
        indices += [tuple(range(first, first + count))] * prompt.copies
        padded = pad(prompt.positions, (longest - prompt.positions.size(1), 0))
        positions.append(padded.expand(prompt.copies, -1, -1))
        first += count
    pixels = torch.cat([prompt.pixel_values for prompt in prompts])
    grids = torch.cat([prompt.grid_thw for prompt in prompts])
    return ImageFeatures(pixels, grids, tuple(indices), torch.cat(positions), layout)


def prompt_limit(config: TrainerConfig, context: int | None) -> int:
    """Count the tokens a prompt may have: `--max_length`, or what the context leaves for it.

    With `--use_vllm` and `--vllm_max_model_len` that is the context.
    """
    if config.use_vllm and config.vllm_max_model_len is not None:
        context = min(config.vllm_max_model_len, context or config.vllm_max_model_len)
    if context is None:
        return config.max_length
    if context <= config.max_completion_length:
        raise ConfigError(
            f"--max_completion_length {config.max_completion_length} leaves no room for a prompt "
            f"in the model's context of {context} tokens; make it smaller"
        )
    return min(config.max_length, context - config.max_completion_length)


class PromptDataset(Dataset["Prompt | str"]):
    """Makes the prompt of a row when a worker asks for it."""

    def __init__(self, rows: list[Row], maker: PromptMaker) -> None:
        self._rows = rows
        self._maker = maker

    def __getitem__(self, key: Key) -> Prompt | str:
        """Return a row's prompt, or a problem: an error of a worker arrives as its traceback."""
        try:
            return self._maker.make(self._rows[key[0]], key[1])
        except DatasetError as error:
            return str(error)


def rollout_keys(config: TrainerConfig, ranks: Ranks, rows: int) -> Iterator[list[Key]]:
    """Yield, for each rollout, the rows this rank answers and how often; never ends.

    All ranks walk through the same shuffled order, which is another one in each pass. A rollout
    takes the next prompts of it, repeats each `--num_generations` times, and gives every rank the
    same number of completions in a row: a group may begin on one rank and end on the next.
    """
    per_rank, group = config.completions_per_rank, config.num_generations
    order = _shuffled(rows, config.seed)
    while True:
        chosen = [next(order) for _ in range(ranks.world_size * per_rank // group)]
        mine = range(ranks.rank * per_rank, (ranks.rank + 1) * per_rank)
        copies = Counter(chosen_at // group for chosen_at in mine)
        yield [(chosen[prompt], count) for prompt, count in copies.items()]


def _shuffled(rows: int, seed: int) -> Iterator[int]:
    shuffler = random.Random(seed)  # noqa: S311 - no secret
    while True:
        order = list(range(rows))
        shuffler.shuffle(order)
        yield from order


def steps_in(config: TrainerConfig, rows: int, ranks: int) -> int:
    """Count the optimizer steps of the run: `--max_steps`, or whole passes over the rows."""
    if config.max_steps > 0:
        return config.max_steps
    prompts = ranks * config.completions_per_rank // config.num_generations
    rollouts = max(1, int(config.num_train_epochs * rows) // prompts)
    return rollouts * config.steps_per_rollout


def prompt_loader(
    rows: list[Row], loaded: LoadedModel, config: TrainerConfig, ranks: Ranks, skip: int = 0
) -> Generator[PromptBatch, None, None]:
    """Start the DataLoader with its workers, after `skip` rollouts, and return its iterator."""
    with_images = next((row for row in rows if row.images), None)
    if loaded.vision is None and with_images is not None:
        raise DatasetError(
            f"{with_images.location} has an image, and --model {config.model or '(embedded)'} "
            "takes none: choose a vision-language model, or remove the column images"
        )
    workers, maker = config.dataloader_num_workers, PromptMaker.of(loaded, config)
    loader = DataLoader(
        PromptDataset(rows, maker),
        # torch takes any iterable
        batch_sampler=itertools.islice(rollout_keys(config, ranks, len(rows)), skip, None),
        collate_fn=maker.join,
        num_workers=workers,
        worker_init_fn=_leave_signals_to_rank,
        prefetch_factor=config.dataloader_prefetch_factor if workers else None,
        generator=torch.Generator().manual_seed(config.seed),  # else it takes from the global one
    )
    return _delivered(iter(loader))


def _delivered(fetched: Iterator[PromptBatch | str]) -> Generator[PromptBatch, None, None]:
    warned = False
    for batch in fetched:
        if isinstance(batch, str):
            raise DatasetError(batch)
        for name, value in batch.effort.items():
            counter(f"dataload/{name}", value)
        if batch.cut and not warned:
            warned = True
            LOG.warning(
                "%d of this rollout's prompts are longer than --max_length or the model's context "
                "allow and lost their start; said once", batch.cut,
            )  # fmt: skip
        counter("rollout/prompt_tokens", float(batch.mask.sum()))
        yield batch


def _leave_signals_to_rank(_worker: int) -> None:
    # Ctrl-C and torchrun signal the whole process group; the rank decides how the job ends. A
    # worker killed by a signal would be an error there, so it exits with 0.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
