"""How sure a verdict is, by what could not be seen."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder
from tests.verdicts import REWARD, verdict


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
