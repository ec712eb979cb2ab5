"""One look, as Ctrl-C between the looks leaves it: nobody is stuck but who can be nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Evidence
from tests.evidence import EvidenceBuilder, frames


def once(evidence: Evidence) -> Verdict:
    first = replace(
        evidence, looks=evidence.looks[:1], stacks=evidence.stacks[:1], limits=evidence.limits[:1]
    )
    return diagnose(first).verdict


def hang() -> EvidenceBuilder:
    build = EvidenceBuilder()
    build.rank(3).stack = frames("reward /home/me/rewards.py:31", "main /home/me/train.py:9")
    return build


def test_a_long_wait_in_one_look_is_slow() -> None:
    said = once(hang().build())
    assert said.state == "slow"
    assert said.confidence <= 0.5
    assert not any("of a core" in item.text or "woke" in item.text for item in said.evidence)


@pytest.mark.parametrize("state", ["T", "t"])
def test_who_is_stopped_is_stopped_in_one_look(state: str) -> None:
    build = EvidenceBuilder()
    build.rank(3).state = state
    said = once(build.build())
    assert (said.state, said.culprits) == ("stuck", (3,))


def test_one_look_is_never_healthy() -> None:
    build = EvidenceBuilder()
    build.waited_s = 0.5
    said = once(build.build())
    assert (said.state, said.summary.split(",")[0]) == ("slow", "One look was taken")
