"""How sure a verdict is: 0..1, such that of verdicts with 0.9, nine in ten are right."""

from __future__ import annotations

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.decision.confidence_table import probability
from grpo_doctor.hang.decision.features import features
from grpo_doctor.hang.model.scene import Scene

LEAST = 0.35  # below that the verdict is `unknown`
MOST = 0.99


def confidence(scene: Scene, candidate: Candidate, victims: tuple[int, ...]) -> float:
    """The probability that this candidate is right in cause and culprit."""
    sure = probability(features(scene, candidate, victims))
    if candidate.either:
        sure /= len(candidate.culprits)
    return round(min(sure, MOST), 2)
