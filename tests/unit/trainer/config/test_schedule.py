"""The learning rate of each step."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.config import TrainerConfig


def rates(total: int, **options: object) -> list[float]:
    config = TrainerConfig(**{"learning_rate": 1.0, **options})  # type: ignore[arg-type]
    return [config.learning_rate_at(number, total) for number in range(1, total + 1)]


def test_constant_after_a_linear_warm_up() -> None:
    assert rates(6, lr_scheduler_type="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_linear_begins_at_the_peak_and_would_reach_zero_after_the_last_step() -> None:
    schedule = rates(4, lr_scheduler_type="linear", warmup_ratio=0.0)
    assert schedule == pytest.approx([1, 0.75, 0.5, 0.25])


def test_cosine() -> None:
    schedule = rates(4, lr_scheduler_type="cosine", warmup_ratio=0.0)
    assert schedule == pytest.approx([1, 0.8535533906, 0.5, 0.1464466094])


def test_warmup_ratio_rounds_up_and_steps_override_it() -> None:
    assert rates(10, lr_scheduler_type="constant", warmup_ratio=0.11)[:3] == [0.5, 1, 1]
    schedule = rates(10, lr_scheduler_type="constant", warmup_ratio=1.0, warmup_steps=2)
    assert schedule[:3] == [0.5, 1, 1]


def test_a_run_of_warm_up_only_and_a_run_of_one_step() -> None:
    assert rates(2, warmup_steps=4) == [0.25, 0.5]
    assert rates(1, warmup_ratio=0.0) == [1.0]


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_curve_begins_at_the_peak_after_the_warm_up(kind: str) -> None:
    schedule = rates(6, lr_scheduler_type=kind, warmup_steps=2)
    assert schedule[:3] == [0.5, 1, 1]
    assert schedule[2:] == pytest.approx(rates(4, lr_scheduler_type=kind, warmup_ratio=0.0))
