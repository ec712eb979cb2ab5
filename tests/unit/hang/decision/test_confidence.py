"""How sure a verdict is, by what could not be seen."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.decision.confidence import Agreement, features
from grpo_doctor.hang.model import scene
from grpo_doctor_probes.evidence import GpuHolder, GpuLook
from tests.evidence import EvidenceBuilder
from tests.verdicts import REWARD, verdict

WAITS, COMPUTES, IDLE = (100.0, 100.0), (100.0, 640.0), (0.0, 70.0)


def asleep() -> EvidenceBuilder:
    build = EvidenceBuilder(recorded=False)
    process = build.elsewhere(2, REWARD)
    process.blocks("sleep")
    process.still_s = 40.0
    return build


def sure(build: EvidenceBuilder) -> float:
    found = verdict(build)
    assert found.culprits == (2,), found.summary
    return found.confidence


def test_a_rank_that_could_not_be_looked_into_makes_nothing_surer() -> None:
    """By how much it makes less sure is measured: hardly, where the culprit itself was seen."""
    unseen = asleep()
    unseen.rank(1).stack = ()
    assert sure(unseen) <= sure(asleep())


def test_a_rank_that_has_ended_hides_nothing() -> None:
    """Neither the culprit itself, which has no stack any more, nor another that died with it."""
    alone, both = EvidenceBuilder(), EvidenceBuilder()
    for build in (alone, both):
        build.rank(2).state, build.rank(2).exit_code = "Z", 9
    stopped = EvidenceBuilder()
    stopped.elsewhere(2, REWARD).state = "T"
    both.rank(1).stack = ()
    assert sure(alone) == sure(both) >= sure(stopped) - 0.02


def test_what_is_seen_of_a_stopped_rank_does_not_depend_on_the_others() -> None:
    seen, unseen = EvidenceBuilder(), EvidenceBuilder()
    for build in (seen, unseen):
        build.elsewhere(2, REWARD).state = "T"
    unseen.rank(1).stack = ()
    assert sure(seen) == sure(unseen)


@pytest.mark.parametrize(
    ("numbers", "culprits", "agreement"),
    [
        ((WAITS, WAITS, COMPUTES, WAITS), (2,), "agrees"),
        ((WAITS, WAITS, IDLE, WAITS), (2,), "agrees"),
        ((WAITS, COMPUTES, WAITS, WAITS), (2,), "disagrees"),
        ((WAITS,) * 4, (), "agrees"),
        ((WAITS,) * 4, (2,), "silent"),
        ((IDLE,) * 4, (2,), "silent"),
        ((), (2,), "silent"),
    ],
)
def test_gpus_speak_for_who_computes_alone_or_has_nothing_to_do(
    numbers: tuple[tuple[float, float], ...], culprits: tuple[int, ...], agreement: Agreement
) -> None:
    build = asleep()
    look = tuple(
        GpuLook(
            index,
            1,
            utilization_pct=busy_pct,
            power_w=power_w,
            power_limit_w=700.0,
            holders=(GpuHolder(100 + index, "pid"),),
        )
        for index, (busy_pct, power_w) in enumerate(numbers)
    )
    build.gpus = [look, look] if look else []
    root = Candidate("user-code-busy", "computes", (), Sink.LINE, culprits=culprits)
    assert features(scene.build(build.build()), root, (0,)).gpus == agreement
