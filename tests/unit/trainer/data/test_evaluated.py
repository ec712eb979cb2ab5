"""Which rows are evaluated, and which of them each rank generates for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import make_evaluation
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.tiny import tiny_tokenizer
from grpo_doctor_trainer.ranks import Ranks

LOADED = LoadedModel(torch.nn.Identity(), tiny_tokenizer(), None, ())
ROWS = [Row([{"role": "user", "content": "+" * n}], {"solution": n}) for n in range(1, 12)]
CONFIG = TrainerConfig(
    eval_steps=5, per_device_train_batch_size=2, gradient_accumulation_steps=2, seed=1
)


def ranks(rank: int, world_size: int) -> Ranks:
    return Ranks(rank, world_size, local_rank=rank, device=torch.device("cpu"), threads=1)


def numbers(rows: int, world_size: int, config: TrainerConfig = CONFIG) -> list[list[range]]:
    made = [
        make_evaluation(ROWS[:rows], LOADED, config, ranks(rank, world_size))
        for rank in range(world_size)
    ]
    return [list(evaluation.batches) for evaluation in made if evaluation is not None]


def test_without_evaluation_there_is_none() -> None:
    never = dataclasses.replace(CONFIG, eval_steps=0)
    assert make_evaluation(ROWS, LOADED, never, ranks(0, 1)) is None


@pytest.mark.parametrize(
    ("rows", "world_size", "expected"),
    [
        (11, 1, [[range(4)]]),  # as many as a rollout has
        (3, 1, [[range(3)]]),
        (11, 2, [[range(4)], [range(4, 8)]]),
        (5, 2, [[range(3)], [range(3, 6)]]),  # the first row comes twice
    ],
)
def test_rows_of_the_training_data_are_one_batch_on_each_rank(
    rows: int, world_size: int, expected: list[list[range]]
) -> None:
    assert numbers(rows, world_size) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (9, [[range(4), range(8, 12)], [range(4, 8), range(12, 16)]]),
        (8, [[range(4)], [range(4, 8)]]),
    ],
)
def test_all_rows_of_a_file_are_taken_and_ranks_have_as_many_batches(
    rows: int, expected: list[list[range]], tmp_path: Path
) -> None:
    file = tmp_path / "val.jsonl"
    file.write_text("\n".join(f'{{"prompt": "{n}", "solution": "{n}"}}' for n in range(rows)))
    config = dataclasses.replace(CONFIG, val_dataset=[str(file)])
    assert numbers(3, 2, config) == expected
    evaluation = make_evaluation(ROWS, LOADED, config, ranks(1, 2))
    assert evaluation is not None
    assert evaluation.rows == rows
    assert len(evaluation.batch(range(rows - 1, rows + 1)).rows) == 2


def test_images_need_a_model_that_takes_them() -> None:
    row = dataclasses.replace(ROWS[0], images=(Path("x.png"),))
    with pytest.raises(DatasetError, match="has images, and the model takes none"):
        make_evaluation([row], LOADED, CONFIG, ranks(0, 1))
