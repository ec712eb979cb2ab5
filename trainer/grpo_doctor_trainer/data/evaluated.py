"""What is evaluated during training: rows, and the batches in which each rank answers them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_doctor_trainer.data.batch import Collator
from grpo_doctor_trainer.data.checking import usable_rows
from grpo_doctor_trainer.data.making import prompt_maker
from grpo_doctor_trainer.data.prompts import PromptDataset
from grpo_doctor_trainer.data.rows import load_rows
from grpo_doctor_trainer.errors import DatasetError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.group import Ranks


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, the same on every rank.

    Attributes:
        rows: how many.
        prompts: of the rows.
        collate: makes a batch of some.
        batches: of this rank, by the numbers of their rows. Every rank has as many, of one size: a
            generation may be a collective. The last ones begin with the first row again.
    """

    rows: int
    prompts: PromptDataset
    collate: Collator
    batches: tuple[range, ...]

    def batch(self, numbers: range) -> PromptBatch:
        """Makes the prompts of one batch.

        Raises:
            DatasetError: an image is damaged, or a prompt with images is too long.
        """
        fetched = self.collate([self.prompts[number % self.rows, 1] for number in numbers])
        if fetched.batch is None:
            raise DatasetError(str(fetched.problem))
        return fetched.batch


def make_evaluation(
    rows: list[Row], loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
) -> Evaluation | None:
    """Loads what `--val_dataset` names, or takes rows of the training data; none if never.

    Raises:
        DatasetError: it cannot be read, or has images and the model takes none.
    """
    if not config.eval_steps:
        return None
    largest = config.completions_per_rank
    evaluated = rows[: largest * ranks.world_size]
    if config.val_dataset:
        columns = dict.fromkeys(rows[0].columns)  # the reward functions were chosen by these
        evaluated = [
            dataclasses.replace(row, columns=columns | row.columns)
            for row in usable_rows(load_rows(config.val_dataset, config.seed), config, ranks)
        ]
    if loaded.vision is None and any(row.images for row in evaluated):
        raise DatasetError("--val_dataset has images, and the model takes none")
    count = len(evaluated)
    size = min(largest, -(-count // ranks.world_size))
    starts = range(ranks.rank * size, count + ranks.rank * size, ranks.world_size * size)
    prompts = PromptDataset(
        evaluated, prompt_maker(loaded, config), skips_bad_images=config.on_bad_image == "skip"
    )
    collate = Collator(loaded.tokenizer.pad_token_id, loaded.vision, keeps_pictures=config.use_vllm)
    return Evaluation(
        count, prompts, collate, tuple(range(start, start + size) for start in starts)
    )
