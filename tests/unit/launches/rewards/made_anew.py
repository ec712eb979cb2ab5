"""A reward that another function makes: pickle refuses it."""

from __future__ import annotations

from collections.abc import Callable


def weighted(weight: float) -> Callable[..., float]:
    """A closure over the weight."""

    def score(data_source: str, solution_str: str, ground_truth: str, **_: object) -> float:
        return weight * (solution_str == ground_truth)

    return score


compute_score = weighted(0.5)
