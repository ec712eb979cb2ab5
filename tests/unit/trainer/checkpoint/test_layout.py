"""What a checkpoint's folder says: which step, which came last, and what it weighs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.checkpoint import writer as layout
from grpo_doctor_trainer.checkpoint.writer import checkpoints_in, report_sizes, step_of
from grpo_doctor_trainer.logs.console import set_up_console


@pytest.mark.parametrize(
    ("name", "step"),
    [("checkpoint-12", 12), ("checkpoint-0", 0), ("checkpoint-", None), ("checkpoint-best", None),
     ("12", None), ("my-checkpoint-12", None), (".checkpoint-2.unfinished", None)],
)  # fmt: skip
def test_the_step_is_in_the_name(name: str, step: int | None) -> None:
    assert step_of(Path("out") / name) == step


def test_of_checkpoints_of_one_moment_the_highest_step_is_the_last(tmp_path: Path) -> None:
    for step in (10, 9, 100, 0):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        os.utime(folder, ns=(7, 7))
    os.utime(tmp_path / "checkpoint-9", ns=(8, 8))
    assert [step_of(path) for path in checkpoints_in(tmp_path)] == [0, 10, 100, 9]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the trace is given."""
    counters: dict[str, float] = {}
    monkeypatch.setattr(layout, "counter", counters.__setitem__)
    monkeypatch.setattr(layout, "instant", lambda words: counters.setdefault(words, 1.0))
    return counters


SHAPES = {torch.float32: (2, 3), torch.bfloat16: (7, 1), torch.int8: (1,)}
PARTS = {"optimizer/rank_00000.pt": 2_000_000, "resume/rank_00000.pt": 300_000, "a.json": 40_000}


def folder_of(path: Path, sizes: dict[str, int], *dtypes: torch.dtype) -> Path:
    for name, size in sizes.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(bytes(size))
    weights = {str(dtype): torch.zeros(*SHAPES[dtype], dtype=dtype) for dtype in dtypes}
    save_file(weights, path / "model.safetensors")
    return path


def test_each_kind_of_file_is_counted_and_said(
    tmp_path: Path, counted: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_console(0)
    folder = folder_of(tmp_path, PARTS, torch.float32)
    report_sizes(folder, 19, 1.25)
    weights = (folder / "model.safetensors").stat().st_size
    assert counted == {
        "checkpoint/weights_bytes": weights,
        "checkpoint/optimizer_bytes": 2_000_000,
        "checkpoint/other_bytes": 340_000,
        "checkpoint/weights": 19,
        "checkpoint/saved as float32": 1,
    }
    assert capsys.readouterr().out == (
        f"saved {folder}: 2.3 MB = weights 0.0 (float32) + optimizer 2.0 + resume 0.3 + "
        "tokenizer and rest 0.0; 1.2 s\n"
    )


def test_an_optimizer_that_was_left_out_is_said(
    tmp_path: Path, counted: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_console(0)
    report_sizes(folder_of(tmp_path, {"a.json": 40_000}, torch.float32), 0, 0.0)
    assert (counted["checkpoint/weights"], counted["checkpoint/optimizer_bytes"]) == (0, 0)
    printed = capsys.readouterr().out
    assert "+ optimizer" not in printed
    assert "rest 0.0; optimizer state left out; 0.0 s" in printed


def test_the_dtypes_of_most_weights_come_first(tmp_path: Path, counted: dict[str, float]) -> None:
    folder = folder_of(tmp_path, {}, *SHAPES)
    report_sizes(folder, 19, 0.0)
    assert "checkpoint/saved as bfloat16 and float32 and I8" in counted
    (folder / "model.safetensors").unlink()
    report_sizes(folder, 19, 0.0)
    assert "checkpoint/saved as no weights" in counted
