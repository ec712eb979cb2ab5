"""What an engine makes of the one that it drives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.ranks.engine import DeepSpeedEngine


def deepspeed(stage: int, norm: Any, **offload: Any) -> DeepSpeedEngine:
    """An engine of a module whose gradients have a norm of 5."""
    module = torch.nn.Linear(2, 1)
    module.weight.grad, module.bias.grad = torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])
    optimizer = torch.optim.SGD(module.parameters(), 1.0)

    def step() -> None:  # DeepSpeed's own takes the gradients with it
        optimizer.step()
        optimizer.zero_grad()

    inner = SimpleNamespace(
        module=module,
        optimizer=optimizer,
        config={"zero_optimization": offload},
        step=step,
        zero_optimization_stage=lambda: stage,
        get_global_grad_norm=lambda: norm,
    )
    return DeepSpeedEngine(inner, torch.device("cpu"))


@pytest.mark.parametrize(
    ("stage", "deepspeeds_own", "norm"),
    [(0, None, 5.0), (0, torch.tensor(2.0), 2.0), (2, torch.tensor(3.0), 3.0), (3, None, 0.0)],
)
def test_the_norm_is_deepspeeds_and_of_the_gradients_where_it_has_none(
    stage: int, deepspeeds_own: torch.Tensor | None, norm: float
) -> None:
    engine = deepspeed(stage, deepspeeds_own)
    before = engine.module.bias.item()
    assert engine.step(0.5) == pytest.approx(norm)
    assert engine.module.bias.item() == pytest.approx(before - 0.5 * 4.0)


@pytest.mark.parametrize(
    ("offload", "name"),
    [
        ({}, "DeepSpeed ZeRO-3"),
        ({"offload_param": {"device": "cpu"}}, "DeepSpeed ZeRO-3, param offload"),
        (
            {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}},
            "DeepSpeed ZeRO-3, optimizer and param offload",
        ),
    ],
    ids=["none", "one", "both"],
)
def test_what_is_in_host_memory_is_named(offload: dict[str, Any], name: str) -> None:
    assert deepspeed(3, None, **offload).describe() == name
