"""Verdicts as the confidence table sees them: the features of their roots, and whether right."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import msgspec

from grpo_doctor.hang import diagnose as reasoning
from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.decision.confidence import Features, features
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Evidence
from tests.corpus.degraded import variants
from tests.corpus.items import Item
from tests.corpus.score import evidence_of, ranks_right
from tests.faults.kept import Truth

WHOLE = "whole"
_SURE = 1.0  # so that no verdict is taken back for want of confidence


class Case(msgspec.Struct, frozen=True):
    """One verdict. `group` are cases that are alike; `visibility`: WHOLE or how evidence is cut."""

    name: str
    group: str
    visibility: str
    features: Features
    right: bool


def cases(item: Item) -> list[Case]:
    """The verdicts on one job, seen as it was and seen worse, as far as they blame anything."""
    complete = evidence_of(item)
    views = [(WHOLE, complete), *variants(complete)]
    return [case for visibility, evidence in views for case in _case(item, visibility, evidence)]


def _case(item: Item, visibility: str, evidence: Evidence) -> Iterator[Case]:
    roots: list[Features] = []

    def noted(scene: Scene, root: Candidate, victims: tuple[int, ...]) -> float:
        roots.append(features(scene, root, victims))
        return _SURE

    with mock.patch.object(reasoning, "confidence", noted):
        verdict = reasoning.diagnose(evidence).verdict
    right = _right(item.truth, verdict)
    if roots and right is not None:
        group = f"{item.truth.source}: {item.truth.family or item.truth.source}"
        yield Case(item.name, group, visibility, roots[-1], right)


def _right(truth: Truth, verdict: Verdict) -> bool | None:
    """Whether ranks and class are right; None where the truth does not tell."""
    if not truth.classes:  # of a healthy job an alarm is wrong, and nothing else is known
        return False if verdict.state in ("stuck", "dead") else None
    return verdict.cause in truth.classes and ranks_right(truth, verdict.culprits)
