"""When an evaluation is due, and what is made of its completions."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grpo_doctor_trainer import loop as evaluation_module
from grpo_doctor_trainer.data.experience import TokenBatch, mask_after_end
from grpo_doctor_trainer.loop import evaluate_if_due
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.run import Run

END, PAD = 9, 0
# Five rows in batches of three: the first row comes twice.
BATCHES = (range(3), range(3, 6))
TOKENS = [[[1, END, PAD], [1, 2, 3], [END, PAD, PAD]], [[1, 2, END], [1, 2, 3], [1, 2, 3]]]
SCORES = [[[1.0, math.nan], [0.0, 0.5], [1.0, 0.5]], [[0.0, 1.0], [1.0, math.nan], [7.0, 7.0]]]


def run_of(rank: int = 0, *, evaluates: bool = True) -> tuple[Any, dict[int, Any]]:
    """A run of 12 steps, and what its log is told."""
    evaluations: dict[int, Any] = {}
    answers = iter(TOKENS)

    def generate(_prompts: object) -> Any:
        tokens = torch.tensor(next(answers))
        return SimpleNamespace(
            tokens=TokenBatch(tokens, tokens, tokens, mask_after_end(tokens, (END,)))
        )

    scores = iter(SCORES)
    evaluation = SimpleNamespace(rows=5, batches=BATCHES, batch=lambda numbers: numbers)
    run = SimpleNamespace(
        config=SimpleNamespace(eval_steps=5, seed=7, weights=[1.0, 2.0]),
        steps=12,
        ranks=Ranks(rank, 1, rank, torch.device("cpu"), 1),
        evaluation=evaluation if evaluates else None,
        rollout=SimpleNamespace(sync=lambda: None, awake=nullcontext, generate=generate),
        offload=SimpleNamespace(during_rollout=nullcontext),
        rewards=SimpleNamespace(
            names=["a", "b"], score=lambda *_: torch.tensor(next(scores), dtype=torch.float32)
        ),
        tokenizer=SimpleNamespace(batch_decode=lambda rows, **_: ["" for _ in rows]),
        end_tokens=(END,),
        log=SimpleNamespace(evaluated=evaluations.__setitem__),
    )
    return run, evaluations


@pytest.mark.parametrize(
    ("number", "due"), [(1, False), (4, False), (5, True), (6, False), (10, True), (12, True)]
)
def test_evaluations_are_due_at_the_interval_and_at_the_end(number: int, due: bool) -> None:
    run, evaluations = run_of()
    evaluate_if_due(cast("Run", run), number)
    assert list(evaluations) == [number] * due


def test_each_row_counts_once() -> None:
    run, evaluations = run_of()
    began = time.perf_counter()
    evaluate_if_due(cast("Run", run), 5)
    values = evaluations[5]
    assert 0 < values.pop("eval_runtime") <= time.perf_counter() - began
    rewards = [1.0, 1.0, 2.0, 2.0, 1.0]
    assert values == pytest.approx(
        {
            "eval_reward": sum(rewards) / 5,
            "eval_reward_std": math.sqrt(sum((r - 1.4) ** 2 for r in rewards) / 4),
            "eval_rewards/a/mean": 3 / 5,
            "eval_rewards/b/mean": 2 / 3,
            "eval_completions/mean_length": (2 + 3 + 1 + 3 + 3) / 5,
            "eval_completions/clipped_ratio": 2 / 5,
        }
    )


@pytest.mark.parametrize("rank", [0, 3])
def test_each_rank_samples_from_a_seed_of_its_own_and_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    seeds: list[int] = []

    def seeded(seed: int, _device: object) -> Any:
        seeds.append(seed)
        return nullcontext()

    monkeypatch.setattr(evaluation_module, "seeded", seeded)
    for number in (5, 10):
        evaluate_if_due(cast("Run", run_of(rank)[0]), number)
    assert seeds == [7 + rank] * 2
