"""The correction for the rollout engine's log-probs against values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from grpo_doctor_trainer.algorithm.loss import rollout_gap

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
RATIOS = torch.tensor([[4.0, 1.0, 0.5], [1.0, 0.25, 99.0]], dtype=torch.float64)
THRESHOLD = 1.2
MEANS = [2 ** (1 / 3), 0.5]  # geometric, of what the mask marks


def weights(mode: str | None, ratios: torch.Tensor = RATIOS) -> list[list[float]]:
    trainer = torch.full_like(ratios, -1.0)
    gap = rollout_gap(trainer, trainer - ratios.log(), MASK, mode, THRESHOLD)
    rows: list[list[float]] = gap.weight.tolist()
    return [row[: int(n)] for row, n in zip(rows, MASK.sum(dim=1), strict=True)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, [[4.0, 1.0, 0.5], [1.0, 0.25]]),
        ("token_truncate", [[1.2, 1.0, 0.5], [1.0, 0.25]]),
        ("token_mask", [[0.0, 1.0, 0.5], [1.0, 0.25]]),
        ("sequence_truncate", [[1.2] * 3, [0.5] * 2]),
        ("sequence_mask", [[0.0] * 3, [1.0, 0.25]]),
    ],
)
def test_modes(mode: str | None, expected: list[list[float]]) -> None:
    assert MEANS[0] > THRESHOLD
    for actual, row in zip(weights(mode), expected, strict=True):
        assert actual == pytest.approx(row, abs=1e-12)


@pytest.mark.parametrize("mode", [None, "token_mask", "sequence_truncate", "sequence_mask"])
def test_a_token_the_engine_gave_no_log_prob_for_counts_as_equal(mode: str | None) -> None:
    trainer = torch.full((2, 3), -1.0)
    engine = torch.tensor([[-1.0, math.nan, -1.0], [-1.0, -1.0, -math.inf]])
    gap = rollout_gap(trainer, engine, MASK, mode, THRESHOLD)
    assert gap.weight.tolist() == [[1.0] * 3] * 2
    assert gap.distance.abs().max() == 0
    assert gap.mask.tolist() == [[True, False, True], [True, True, False]]


def test_the_gap_is_measured_in_both_directions() -> None:
    trainer = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, -2.0, 0.0]])
    engine = torch.tensor([[-1.5, -0.5, -1.0], [-1.0, -1.0, 9.0]])
    gap = rollout_gap(trainer, engine, MASK, None, THRESHOLD)
    assert gap.distance.tolist() == [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]


def test_a_huge_gap_is_still_a_number() -> None:
    trainer, engine = torch.zeros(2, 3), torch.full((2, 3), -1e9)
    for mode in (None, "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        assert rollout_gap(trainer, engine, MASK, mode, THRESHOLD).weight.isfinite().all()


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_mask"])
def test_a_ratio_at_the_threshold_is_kept_as_it_is(mode: str) -> None:
    trainer = torch.full((2, 3), -1.0)
    assert rollout_gap(trainer, trainer, MASK, mode, 1.0).weight.tolist() == [[1.0] * 3] * 2
