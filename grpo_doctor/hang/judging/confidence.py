"""How sure a verdict is: 0..1, such that of verdicts with 0.9, nine in ten are right.

A cause starts from its own strength (how often its evidence was right on the fault bench), and
what speaks for or against it moves the odds by a fixed factor.
"""

from __future__ import annotations

from grpo_doctor.hang.causes import Candidate, ras
from grpo_doctor.hang.causes.candidate import ENDED, GROUPS, MATTER
from grpo_doctor.hang.scene import Scene

LEAST = 0.35  # below that the verdict is `unknown`
MOST = 0.99
_RECORDING_AGREES = 2.0
_RECORDING_DISAGREES = 0.3
_RAS_AGREES = 1.5
_RAS_DISAGREES = 0.5
_OTHERS_WAIT = 1.5
_NOBODY_WAITS = 0.7
_SOFT = 0.8
_RANKS_UNSEEN = 0.6  # any of them may do worse
_MOST_UNSEEN = 0.5  # of ranks on other hosts, with whom the few here may be in the right


def confidence(scene: Scene, candidate: Candidate, victims: tuple[int, ...]) -> float:
    """The probability that this candidate is right in cause and culprit."""
    odds = candidate.strength / max(1.0 - candidate.strength, 1e-3)
    blamed = {one.rank for one in scene.matching.blame if one.weight >= 0.3}
    if blamed:
        agrees = bool(blamed & set(candidate.culprits))
        odds *= _RECORDING_AGREES if agrees else _RECORDING_DISAGREES
    said = ras.agrees(scene, candidate.culprits)
    if said is not None:
        odds *= _RAS_AGREES if said else _RAS_DISAGREES
    if len(scene.world) > 1:
        odds *= _OTHERS_WAIT if victims else _NOBODY_WAITS
    if not candidate.hard:
        odds *= _SOFT
    if candidate.precise < ENDED and _others_unseen(scene, candidate):
        odds *= _RANKS_UNSEEN
    if scene.elsewhere and MATTER <= candidate.precise <= GROUPS + 1:
        odds *= _MOST_UNSEEN
    return round(min(odds / (1.0 + odds), MOST), 2)


def _others_unseen(scene: Scene, candidate: Candidate) -> bool:
    """Whether a rank that runs, and is not to blame, could not be looked into."""
    others = [one for one in scene.by_rank.values() if one.rank not in candidate.culprits]
    return any(not one.held and not one.place.frames for one in others)
