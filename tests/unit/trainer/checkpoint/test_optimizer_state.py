"""Optimizer state put back where it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grpo_doctor_trainer.checkpoint import _like, capture, is_replicated, restore
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import CheckpointError


def test_moments_go_to_the_weights_device_and_counters_stay() -> None:
    device = torch.device("meta")  # stands for a GPU
    saved = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "note": "x"}
    restored = _like({}, saved, device)
    assert restored["step"].device.type == "cpu"
    assert restored["exp_avg"].device.type == "meta"
    assert restored["note"] == "x"


def test_memory_of_the_same_shape_is_used_again() -> None:
    state: dict[str, Any] = {"exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(3), "step": 1}
    saved = {"exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2), "step": torch.tensor(4.0)}
    restored = _like(state, saved, torch.device("cpu"))
    assert restored["exp_avg"] is state["exp_avg"]
    assert restored["exp_avg"].tolist() == [1.0, 1.0]
    assert restored["exp_avg_sq"].tolist() == [1.0, 1.0]
    assert restored["step"].item() == 4.0


def partitioned(value: float, *, flat: bool = False, **scale: Any) -> Engine:
    """What DeepSpeed leaves on a rank: AdamW steps float32 copies of a part of the weights."""
    masters = [torch.full((3,), value).requires_grad_(), torch.full((2,), value).requires_grad_()]
    stepping = torch.optim.AdamW(masters, lr=0.0)
    for master in masters:
        master.grad = torch.full_like(master, value)
    stepping.step()
    optimizer = SimpleNamespace(optimizer=stepping, **scale)
    if flat:  # ZeRO-3, whose groups are empty between steps
        optimizer.fp32_partitioned_groups_flat = masters
        stepping.param_groups = [{"params": []}]
    return cast("Engine", SimpleNamespace(optimizer=optimizer, masters=masters))


def masters(engine: Engine) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = cast("Any", engine).masters
    return tensors


@pytest.mark.parametrize("flat", [False, True])
def test_copies_that_are_stepped_go_back_with_their_state(flat: bool) -> None:
    source, new = partitioned(2.0, flat=flat), partitioned(5.0, flat=flat)
    assert not is_replicated(source)
    restore(new, capture(source))
    assert [master.tolist() for master in masters(new)] == [[2.0] * 3, [2.0] * 2]
    for before, after in zip(masters(source), masters(new), strict=True):
        first = cast("Any", source).optimizer.optimizer.state[before]
        second = cast("Any", new).optimizer.optimizer.state[after]
        assert first["exp_avg"].equal(second["exp_avg"])


def test_copies_of_other_weights_are_refused_and_nothing_is_changed() -> None:
    saved = capture(partitioned(2.0))
    saved["masters"][1] = torch.zeros(3)
    new = partitioned(5.0)
    with pytest.raises(CheckpointError, match="belongs to other trained weights"):
        restore(new, saved)
    assert masters(new)[0].tolist() == [5.0] * 3
