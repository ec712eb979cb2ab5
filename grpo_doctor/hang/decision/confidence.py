"""How sure a verdict is: the table in `confidence.json`, which `python -m tests.corpus fit` makes.

The share of right answers among recorded jobs whose root was of this kind, moved by what the rest
of the evidence was worth there. Kinds without many cases lean on the kinds above them, and all on
what was right of faults at first sight. Nothing in the table is typed by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from grpo_doctor.hang.causes import Candidate, ras
from grpo_doctor.hang.causes.candidate import CANNOT_MOVE, Liveness
from grpo_doctor.hang.model.gpus import ranks_of_gpus
from grpo_doctor.hang.model.matching.model import Grounds
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.model.xids import owner, xids

UNKNOWN = 0.3  # of verdicts that say themselves that the reason is open
LEAST = 0.35  # below that the verdict is `unknown`
MOST = 0.99
FILE = Path(__file__).with_name("confidence.json")
EVIDENCE = ("recordings", "ras", "gpus", "stacks", "victims", "waited", "several", "unseen_hosts")
ALL = "all"
Agreement = Literal["agrees", "disagrees", "silent"]
_WAITS_S = (3.0, 10.0, 30.0, 120.0, 600.0)


def confidence(scene: Scene, candidate: Candidate, victims: tuple[int, ...]) -> float:
    """The probability that this candidate is right in cause and culprit."""
    sure = probability(features(scene, candidate, victims))
    if candidate.either:
        sure /= len(candidate.culprits)
    return round(min(sure, MOST), 2)


@dataclass(frozen=True, slots=True)
class Features:
    """Of one verdict. `sink` is the name of a `causes.candidate.Sink` in lower case.

    `recordings`, `ras` and `gpus`: whether the flight recorders, NCCL's RAS, and the power and
    errors of GPUs point at the same ranks. `stacks`: whether every other rank that runs could be
    looked into. `waited`: how many of the bounds in `_WAITS_S` the wait is longer than; -1 where
    nobody knows. `unseen_hosts`: whether ranks of the job are on hosts that were not looked at.
    """

    sink: str
    liveness: Liveness
    cause: str
    recordings: Agreement
    ras: Agreement
    gpus: Agreement
    stacks: bool
    victims: bool
    waited: int
    several: bool  # culprits
    unseen_hosts: bool


def features(scene: Scene, root: Candidate, victims: tuple[int, ...]) -> Features:
    """Reads them off a scene and the root that was chosen."""
    waits = [wait_s for wait_s in (scene.patience.waited_s, root.still_s) if wait_s is not None]
    return Features(
        sink=root.sink.name.lower(),
        liveness=root.liveness,
        cause=root.cause,
        recordings=_agreement({blame.rank for blame in scene.matching.blame}, root.culprits),
        ras=_agreement(ras.accused(scene), root.culprits),
        gpus=_of_gpus(scene, root.culprits),
        stacks=not _others_unseen(scene, root),
        victims=bool(victims) or len(scene.world) <= 1,
        waited=sum(max(waits) >= bound for bound in _WAITS_S) if waits else -1,
        several=len(root.culprits) > 1,
        unseen_hosts=bool(scene.elsewhere),
    )


def _agreement(accused: set[int], culprits: tuple[int, ...]) -> Agreement:
    if not accused:
        return "silent"
    return "agrees" if accused & set(culprits) else "disagrees"


def _of_gpus(scene: Scene, culprits: tuple[int, ...]) -> Agreement:
    """Ranks whose GPU alone computes, or has nothing to do, while the others' wait, and those whose
    GPU failed; where all wait in the kernel of a collective, that no rank is to blame.
    """
    accused = {*scene.gpus.ranks, *(rank for gpu in scene.gpus.failed() for rank in gpu.ranks)}
    rank_of = {pid: actor.rank for pid, actor in scene.by_pid.items()}
    on_gpus = ranks_of_gpus(scene.evidence)
    for line in xids(scene.evidence):
        accused.update(owner(line, on_gpus, rank_of).ranks if line.fatal else ())
    if not accused and not culprits and scene.gpus.conclusion == "collective-wait":
        return "agrees"
    return _agreement(accused, culprits)


def _others_unseen(scene: Scene, root: Candidate) -> bool:
    """Whether a rank that runs, and is not to blame, could not be looked into."""
    innocent = [actor for actor in scene.by_rank.values() if actor.rank not in root.culprits]
    return any(not actor.held and not actor.place.frames for actor in innocent)


class Cell(msgspec.Struct, frozen=True):
    """Recorded verdicts of one kind: how many, how many of them right, and the smoothed share."""

    cases: int
    right: int
    probability: float


class Weight(msgspec.Struct, frozen=True):
    """What one value of one feature moves the log odds by, and in how many cases it was seen."""

    cases: int
    right: int
    log_odds: float


class Table(msgspec.Struct, frozen=True):
    """`kinds` by the keys of `kinds_of`; `evidence` by feature and value, as `value_of` writes it.

    `recordings` are of dumps alone, by the grounds of the blame ("none" where nobody is blamed).
    `first_sight` are verdicts on faults that nobody had foreseen, the first time.
    """

    made_by: str
    first_sight: Cell
    kinds: dict[str, Cell]
    evidence: dict[str, dict[str, Weight]]
    recordings: dict[str, Cell] = {}


def probability(features: Features) -> float:
    """How probable it is that the verdict has the right ranks and the right class: 0 to 1."""
    return looked_up(table(), features)


def of_recordings(grounds: Grounds | None) -> float:
    """How probable it is that dumps alone name the right ranks, or rightly nobody: 0 to 1."""
    cell = table().recordings.get(grounds or "none", table().first_sight)
    return round(min(cell.probability, MOST), 2)


def looked_up(table: Table, features: Features) -> float:
    """The same of a given table."""
    cell = next((table.kinds[key] for key in kinds_of(features) if key in table.kinds), None)
    odds = _logit(table.first_sight.probability if cell is None else cell.probability)
    for name in EVIDENCE:
        weight = table.evidence.get(name, {}).get(value_of(features, name))
        odds += 0.0 if weight is None else weight.log_odds
    return 1.0 / (1.0 + math.exp(-odds))


def kinds_of(features: Features) -> tuple[str, ...]:
    """The kinds that a root belongs to, the narrowest first."""
    return f"{features.sink}/{features.liveness}", features.sink, ALL


def value_of(features: Features, name: str) -> str:
    """A value as the table has it: it weighs otherwise where nothing can move the root."""
    value = str(getattr(features, name)).lower()
    return f"{value}, {'proven' if features.liveness in CANNOT_MOVE else 'open'}"


@cache
def table(file: Path = FILE) -> Table:
    """The shipped table."""
    return msgspec.json.decode(file.read_bytes(), type=Table)


def _logit(share: float) -> float:
    return math.log(share / (1.0 - share))
