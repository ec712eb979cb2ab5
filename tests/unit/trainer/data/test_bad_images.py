"""Images that cannot be read: found before training or by a worker, and what becomes of the row."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import prompt_loader
from grpo_doctor_trainer.data.rows import Row, check_images, load_rows, problem
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import LoadedModel, load_model
from grpo_doctor_trainer.ranks import Ranks

ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Good, no file, no image, damaged behind the header, no picture at all."""
    file = io.BytesIO()
    Image.effect_noise((60, 60), 90).save(file, "PNG")
    (tmp_path / "good.png").write_bytes(file.getvalue())
    (tmp_path / "text.png").write_text("text", encoding="utf-8")
    (tmp_path / "cut.png").write_bytes(file.getvalue()[:-900])
    names = ["good.png", "missing.png", "text.png", "cut.png"]
    raws = [{"prompt": str(n), "images": [name]} for n, name in enumerate(names)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(raw) + "\n" for raw in [*raws, {"prompt": "4"}]), "utf-8")
    return load_rows([str(path)])


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(parse(["--model", "embedded-vl"], 1), torch.float32)


def test_stopping_names_the_first_and_counts_the_rest(rows: list[Row]) -> None:
    with pytest.raises(DatasetError) as error:
        check_images(rows, ALONE)
    message = str(error.value)
    assert "rows.jsonl, line 2: image 1 of 1 (" in message
    assert "missing.png): there is no such file; 1 more rows have such an image" in message
    check_images([rows[0], *load_rows([])], ALONE)


def config_for(workers: int) -> TrainerConfig:
    return dataclasses.replace(
        parse(["--model", "embedded-vl"], 1),
        per_device_train_batch_size=6, num_generations=2, dataloader_num_workers=workers,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [0, 1])
def test_damage_behind_the_header_ends_the_run_in_one_message(
    rows: list[Row], loaded: LoadedModel, workers: int
) -> None:
    usable = [rows[0], rows[3], rows[4]]
    batches = prompt_loader(usable, loaded, config_for(workers), ALONE)
    with pytest.raises(DatasetError, match=r"line 4: image 1 of 1 \(.*cut.png\): ") as error:
        next(batches)
    assert "Traceback" not in str(error.value)


def test_which_of_the_images_of_a_row_is_bad_is_said(rows: list[Row]) -> None:
    (bad,) = rows[2].images
    row = dataclasses.replace(rows[0], images=(*rows[0].images, bad, *rows[0].images))
    assert (problem(row) or "").startswith(f"{row.location}: image 2 of 3 ({bad!s}): ")
    assert problem(rows[0]) is None
