"""Real jobs of every class, recorded once: who is to blame and why. All of them: `make replay`."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from tests.corpus.score import evidence_of
from tests.unit.hang.recorded import held_to_the_truth, items

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


@pytest.mark.parametrize("family", FAMILIES)
def test_the_culprit_and_the_class_are_those_that_are_known(family: str) -> None:
    held_to_the_truth(f"gloo-{family}")


@pytest.mark.parametrize("family", ["acceptance", "held-out-groups", "unforeseen-host"])
def test_blame_comes_with_evidence_and_never_falls_on_the_victims(family: str) -> None:
    for item in items(f"gloo-{family}"):
        verdict = diagnose(evidence_of(item)).verdict
        if verdict.state == "stuck" and verdict.cause != "unknown":
            assert verdict.evidence, item.name
            assert not set(verdict.culprits) & set(verdict.victims), item.name
