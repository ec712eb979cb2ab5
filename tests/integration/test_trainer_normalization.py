"""The gradient of one optimizer step is the same however its completions are split.

Two real gloo ranks with two accumulated micro-batches each, through the trainer's own engine,
beside one process that has all of the completions in one batch.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("transformers", reason="needs the trainer extra")

import torch

from grpo_doctor_trainer.algorithm.loss import grpo_loss, tokens_in_loss
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import Experience, TokenBatch
from grpo_doctor_trainer.engine import make_engine
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.ranks import Ranks, join_ranks, leave_ranks
from grpo_doctor_trainer.steplog import loss_metrics
from tests.recorded.forks import shared

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
RANKS, MICRO_BATCHES, SIZE = 2, 2, 3
LENGTHS = [5, 1, 3, 2, 5, 4, 1, 1, 2, 5, 3, 3]
SAME_FOR_ANY_SPLIT = ("grpo", "dr_grpo", "dapo")
LOSS_TYPES = (*SAME_FOR_ANY_SPLIT, "bnpo")


def experience() -> Experience:
    """Twelve completions of different lengths; two of them are not in the loss."""
    generator = torch.Generator().manual_seed(2)
    count = len(LENGTHS)
    tokens = torch.randint(0, 256, (count, 9), generator=generator)
    mask = (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).long()
    batch = TokenBatch(tokens[:, :4], torch.ones(count, 4, dtype=torch.long), tokens[:, 4:], mask)
    old, reference = (-6 + torch.randn(count, 5, generator=generator) for _ in range(2))
    in_loss = torch.ones(count, dtype=torch.long)
    in_loss[[1, 4]] = 0
    return Experience(
        batch, torch.randn(count, generator=generator), old, reference, old + 0.1, in_loss
    )


def config(loss_type: str) -> TrainerConfig:
    return TrainerConfig(
        loss_type=loss_type, beta=0.05, max_completion_length=5,
        gradient_accumulation_steps=MICRO_BATCHES, max_grad_norm=0.0,
    )  # fmt: skip


def rank_main() -> None:
    """One rank: its share of the completions, for each loss; saves gradients and metrics."""
    ranks = join_ranks(60)
    mine = torch.arange(len(LENGTHS)).view(RANKS, MICRO_BATCHES, SIZE)[ranks.rank]
    parts = [experience().select(rows) for rows in mine]
    results = {}
    settings = config("grpo")
    engine = make_engine(None, tiny_model(tiny_tokenizer()), settings, ranks)
    for loss_type in LOSS_TYPES:
        statistics = []
        tokens = tokens_in_loss(parts, ranks)
        for index, part in enumerate(parts):
            with engine.micro_batch(last=index == MICRO_BATCHES - 1):
                loss, counts = grpo_loss(engine.model, part, config(loss_type), tokens)
                engine.backward(loss)
            statistics.append(counts)
        gradients = {n: w.grad.clone() for n, w in engine.module.named_parameters()}
        results[loss_type] = (gradients, loss_metrics(statistics, ranks))
        engine.optimizer.zero_grad(set_to_none=True)
    torch.save(results, f"rank{ranks.rank}.pt")
    leave_ranks()


def joint(loss_type: str, parts: list[Experience]) -> tuple[dict[str, Any], dict[str, float]]:
    """One process: the mean of the losses of the parts."""
    alone = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
    model = tiny_model(tiny_tokenizer())
    tokens = tokens_in_loss(parts, alone)
    results = [grpo_loss(model, part, config(loss_type), tokens) for part in parts]
    torch.autograd.backward(torch.stack([loss for loss, _ in results]).mean())
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    return gradients, loss_metrics([seen for _, seen in results], alone)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Gradients and metrics by loss type, of each rank."""
    folder = tmp_path_factory.mktemp("ranks")
    shared().start(folder, ranks=RANKS, module="tests.integration.test_trainer_normalization")
    assert shared().wait(120) == 0, (folder / "job.log").read_text()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_two_ranks_and_accumulation_equal_one_batch(
    distributed: list[dict[str, Any]], loss_type: str
) -> None:
    """`bnpo` is by its definition, in TRL too, a mean over each micro-batch by itself."""
    every = experience()
    parts = [every]
    if loss_type not in SAME_FOR_ANY_SPLIT:
        parts = [every.select(rows) for rows in torch.arange(len(LENGTHS)).view(-1, SIZE)]
    gradients, metrics = joint(loss_type, parts)
    for found, found_metrics in (rank[loss_type] for rank in distributed):
        for name, expected in gradients.items():
            difference = (found[name] - expected).norm() / expected.norm()
            assert difference < 1e-5, name
        assert found_metrics == pytest.approx(metrics, rel=1e-4, abs=1e-7)


if __name__ == "__main__":
    rank_main()
