"""What a checkpoint's folder says: which step, which came last, and what it weighs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from grpo_doctor_trainer import checkpoint as layout
from grpo_doctor_trainer.checkpoint import checkpoints_in, report_sizes, step_of
from grpo_doctor_trainer.console import set_up_console


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


def test_weights_and_optimizer_are_counted_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: dict[str, float] = {}
    monkeypatch.setattr(layout, "counter", counted.__setitem__)
    set_up_console(0)
    save_file({"weight": torch.zeros(50_000)}, tmp_path / "model.safetensors")
    report_sizes(tmp_path, 50_000, 1.25)
    weights = (tmp_path / "model.safetensors").stat().st_size
    expected = {"checkpoint/weights_bytes": weights, "checkpoint/weights": 50_000}
    assert counted == expected | {"checkpoint/optimizer_bytes": 0}
    sizes = {"optimizer": 2_000_000, "resume": 300_000}
    for name, size in sizes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank_00000.pt").write_bytes(bytes(size))
    report_sizes(tmp_path, 50_000, 1.25)
    assert counted == expected | {"checkpoint/optimizer_bytes": 2_000_000}
    assert capsys.readouterr().out.splitlines()[1] == (
        f"saved {tmp_path}: 0.2 MB of weights, 2.0 of optimizer state; 1.2 s"
    )
