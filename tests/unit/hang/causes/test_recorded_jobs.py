"""Real jobs of every class, recorded once: who is to blame and why. All of them: `make replay`."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from tests.corpus import known, store
from tests.corpus.items import Item
from tests.corpus.score import answer, evidence_of
from tests.corpus.truth import current

# The families that are read and answered in a tenth of a second or two each.
FAMILIES = (
    "acceptance",
    "collectives",
    "control",
    "dataload",
    "engine",
    "held-out-chains",
    "held-out-groups",
    "held-out-host",
    "held-out-ranks",
    "held-out-rewards",
    "held-out-servers",
    "initialisation",
    "network",
    "slow",
    "storage",
    "threads",
    "unforeseen-ends",
    "unforeseen-engines",
    "unforeseen-files",
    "unforeseen-helpers",
    "unforeseen-host",
    "unforeseen-locks",
    "unforeseen-torch",
    "unforeseen-torchrun",
    "user-code",
)


def items(family: str) -> list[Item]:
    """The jobs of one family, each with its truth as it is declared today."""
    stored = store.items_of(store.FOLDER / f"gloo-{family}.xz")
    return [Item(item.name, current(item.truth), item.evidences) for item in stored]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_culprit_and_the_class_are_those_that_are_known(family: str) -> None:
    answers = [answer(item) for item in items(family)]
    wrong = {name: marks for name, marks in known.known().items() if name.startswith("gloo/")}
    said = known.wrong_of(answers)
    assert said == {name: marks for name, marks in wrong.items() if name in said}


@pytest.mark.parametrize("family", ["acceptance", "held-out-groups", "unforeseen-host"])
def test_blame_comes_with_evidence_and_never_falls_on_the_victims(family: str) -> None:
    for item in items(family):
        verdict = diagnose(evidence_of(item)).verdict
        if verdict.state == "stuck" and verdict.cause != "unknown":
            assert verdict.evidence, item.name
            assert not set(verdict.culprits) & set(verdict.victims), item.name
