"""A reward that another process finds by its name."""

from __future__ import annotations


def compute_score(data_source: str, solution_str: str, ground_truth: str, **_: object) -> float:
    """1 where the answer is right."""
    return float(solution_str == ground_truth)
