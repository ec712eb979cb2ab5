"""How sure a verdict is: 0..1, such that of verdicts with 0.9, nine in ten are right.

A cause starts from its own strength (how often its evidence was right on the fault bench), and
what speaks for or against it moves the odds by a fixed factor.
"""

from __future__ import annotations

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.scene import Scene

LEAST = 0.35  # below that the verdict is `unknown`
MOST = 0.99
_RECORDING_AGREES = 2.0
_RECORDING_DISAGREES = 0.3
_OTHERS_WAIT = 1.5
_NOBODY_WAITS = 0.7
_SOFT = 0.8
_RANKS_UNSEEN = 0.6


def confidence(scene: Scene, candidate: Candidate, victims: tuple[int, ...]) -> float:
    """The probability that this candidate is right in cause and culprit."""
    odds = candidate.strength / max(1.0 - candidate.strength, 1e-3)
    blamed = {one.rank for one in scene.matching.blame if one.weight >= 0.3}
    if blamed:
        agrees = bool(blamed & set(candidate.culprits))
        odds *= _RECORDING_AGREES if agrees else _RECORDING_DISAGREES
    if len(scene.world) > 1:
        odds *= _OTHERS_WAIT if victims else _NOBODY_WAITS
    if not candidate.hard:
        odds *= _SOFT
    if any(actor.look is None or not actor.place.frames for actor in scene.by_rank.values()):
        odds *= _RANKS_UNSEEN
    return round(min(odds / (1.0 + odds), MOST), 2)
