"""Optimizer state put back where it was."""

from __future__ import annotations

from typing import Any

import torch

from grpo_doctor_trainer.checkpoint.optimizer_state import _like


def test_moments_go_to_the_weights_device_and_counters_stay() -> None:
    device = torch.device("meta")  # stands for a GPU
    saved = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "note": "x"}
    restored = _like({}, saved, device)
    assert restored["step"].device.type == "cpu"
    assert restored["exp_avg"].device.type == "meta"
    assert restored["note"] == "x"


def test_memory_of_the_same_shape_is_used_again() -> None:
    there: dict[str, Any] = {"exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(3), "step": 1}
    saved = {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2), "step": torch.tensor(4.0)}
    restored = _like(there, saved, torch.device("cpu"))
    assert restored["exp_avg"] is there["exp_avg"]
    assert restored["exp_avg"].tolist() == [1.0, 1.0]
    assert restored["exp_avg_sq"].tolist() == [1.0, 1.0]
    assert restored["step"].item() == 4.0
