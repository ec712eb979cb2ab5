"""What the confidence of a verdict depends on: the kind of its root, and the evidence at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpo_doctor.hang.causes import Candidate, ras
from grpo_doctor.hang.causes.candidate import Liveness
from grpo_doctor.hang.model.scene import Scene

Agreement = Literal["agrees", "disagrees", "silent"]
_WAITS_S = (3.0, 10.0, 30.0, 120.0, 600.0)


@dataclass(frozen=True, slots=True)
class Features:
    """Of one verdict. `sink` is the name of a `causes.candidate.Sink` in lower case.

    `recordings` and `ras`: whether the flight recorders, and NCCL's RAS, point at the same ranks.
    `stacks`: whether every other rank that runs could be looked into. `waited`: how many of the
    bounds in `_WAITS_S` the wait is longer than; -1 where nobody knows. `unseen_hosts`: whether
    ranks of the job are on hosts that were not looked at.
    """

    sink: str
    liveness: Liveness
    cause: str
    recordings: Agreement
    ras: Agreement
    stacks: bool
    victims: bool
    waited: int
    several: bool  # culprits
    unseen_hosts: bool


def features(scene: Scene, root: Candidate, victims: tuple[int, ...]) -> Features:
    """Reads them off a scene and the root that was chosen."""
    waits = [one for one in (scene.patience.waited_s, root.still_s) if one is not None]
    return Features(
        sink=root.sink.name.lower(),
        liveness=root.liveness,
        cause=root.cause,
        recordings=_agreement(_blamed(scene), root.culprits),
        ras=_of_ras(scene, root.culprits),
        stacks=not _others_unseen(scene, root),
        victims=bool(victims) or len(scene.world) <= 1,
        waited=sum(max(waits) >= bound for bound in _WAITS_S) if waits else -1,
        several=len(root.culprits) > 1,
        unseen_hosts=bool(scene.elsewhere),
    )


def _blamed(scene: Scene) -> set[int]:
    return {one.rank for one in scene.matching.blame}


def _agreement(named: set[int], culprits: tuple[int, ...]) -> Agreement:
    if not named:
        return "silent"
    return "agrees" if named & set(culprits) else "disagrees"


def _of_ras(scene: Scene, culprits: tuple[int, ...]) -> Agreement:
    said = ras.agrees(scene, culprits)
    if said is None:
        return "silent"
    return "agrees" if said else "disagrees"


def _others_unseen(scene: Scene, root: Candidate) -> bool:
    """Whether a rank that runs, and is not to blame, could not be looked into."""
    others = [one for one in scene.by_rank.values() if one.rank not in root.culprits]
    return any(not one.held and not one.place.frames for one in others)
