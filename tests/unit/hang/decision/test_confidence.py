"""How sure a verdict is, by what could not be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.candidate import Candidate, Liveness, Sink
from grpo_doctor.hang.decision.confidence import (
    Agreement,
    Cell,
    Features,
    Table,
    Weight,
    features,
    looked_up,
    of_recordings,
    table,
    value_of,
)
from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.process.patience import Patience
from grpo_doctor_probes.evidence import GpuHolder, GpuLook
from tests.evidence import EvidenceBuilder
from tests.unit.hang.causes.test_ras import answers
from tests.verdicts import REWARD, verdict

WAITS, COMPUTES, IDLE = (100.0, 100.0), (100.0, 640.0), (0.0, 70.0)


def asleep() -> EvidenceBuilder:
    build = EvidenceBuilder(recorded=False)
    process = build.elsewhere(2, REWARD)
    process.blocks("sleep")
    process.still_s = 40.0
    return build


def sure(build: EvidenceBuilder) -> float:
    outcome = verdict(build)
    assert outcome.culprits == (2,), outcome.summary
    return outcome.confidence


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
    example, unseen = EvidenceBuilder(), EvidenceBuilder()
    for build in (example, unseen):
        build.elsewhere(2, REWARD).state = "T"
    unseen.rank(1).stack = ()
    assert sure(example) == sure(unseen)


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


def read(
    build: EvidenceBuilder,
    *culprits: int,
    victims: tuple[int, ...] = (0,),
    waited_s: float | None = None,
    still_s: float | None = None,
) -> Features:
    changed_evidence = replace(scene.build(build.build()), patience=Patience(waited_s))
    root = Candidate("user-code-busy", "", (), Sink.LINE, culprits=culprits, still_s=still_s)
    return features(changed_evidence, root, victims)


@pytest.mark.parametrize(
    ("launched", "agreement"),
    [
        ((10, 10, 9, 10), "agrees"),
        ((10, 9, 10, 10), "disagrees"),
        ((10, 10, 10, 10), "silent"),
        ((), "silent"),
    ],
)
def test_nccl_speaks_for_who_has_launched_less(
    launched: tuple[int, ...], agreement: Agreement
) -> None:
    build = asleep()
    ras = answers(build, *launched) if launched else ()
    root = Candidate("user-code-busy", "", (), Sink.LINE, culprits=(2,))
    assert features(scene.build(replace(build.build(), ras=ras)), root, ()).ras == agreement


@pytest.mark.parametrize(
    ("unseen", "state", "stacks"),
    [(None, "S", True), (1, "S", False), (2, "S", True), (1, "T", True)],
)
def test_whether_every_other_rank_that_runs_could_be_looked_into(
    unseen: int | None, state: str, stacks: bool
) -> None:
    """Rank 2 is the culprit."""
    build = asleep()
    if unseen is not None:
        build.rank(unseen).stack, build.rank(unseen).state = (), state
    assert read(build, 2).stacks is stacks


@pytest.mark.parametrize(
    ("ranks", "victims", "there_are"), [(1, (), True), (2, (), False), (2, (0,), True)]
)
def test_a_job_of_one_rank_has_no_victims(
    ranks: int, victims: tuple[int, ...], there_are: bool
) -> None:
    assert read(EvidenceBuilder(ranks=ranks), 0, victims=victims).victims is there_are


@pytest.mark.parametrize(("culprits", "several"), [((), False), ((2,), False), ((1, 2), True)])
def test_how_many_are_blamed(culprits: tuple[int, ...], several: bool) -> None:
    assert read(asleep(), *culprits).several is several


@pytest.mark.parametrize(
    ("waited_s", "still_s", "bounds"),
    [
        (None, None, -1),
        (2.9, None, 0),
        (3.0, None, 1),
        (None, 3.0, 1),
        (3.0, 10.0, 2),
        (30.0, 10.0, 3),
        (119.9, None, 3),
        (120.0, None, 4),
        (600.0, 0.0, 5),
    ],
)
def test_a_wait_by_the_bounds_that_it_is_as_long_as(
    waited_s: float | None, still_s: float | None, bounds: int
) -> None:
    assert read(asleep(), 2, waited_s=waited_s, still_s=still_s).waited == bounds


def example(liveness: Liveness = "unseen") -> Features:
    return replace(read(asleep(), 2), liveness=liveness)


@pytest.mark.parametrize(
    ("liveness", "value"),
    [
        ("never-wakes", "true, proven"),
        ("dead", "true, proven"),
        ("unseen", "true, open"),
        ("computing", "true, open"),
    ],
)
def test_evidence_weighs_otherwise_where_nothing_can_move_the_root(
    liveness: Liveness, value: str
) -> None:
    assert value_of(example(liveness), "stacks") == value


@pytest.mark.parametrize(
    ("kinds", "weights", "sure"),
    [
        ({}, {}, 0.5),
        ({"all": 0.6}, {}, 0.6),
        ({"all": 0.6, "line": 0.7}, {}, 0.7),
        ({"all": 0.6, "line": 0.7, "line/unseen": 0.8}, {}, 0.8),
        ({"line/computing": 0.9}, {}, 0.5),
        ({}, {"true, open": 1.0}, 0.731),
        ({}, {"true, proven": 1.0}, 0.5),
    ],
)
def test_the_narrowest_kind_counts_and_what_else_speaks_for_it(
    kinds: dict[str, float], weights: dict[str, float], sure: float
) -> None:
    made = Table(
        "a test",
        Cell(9, 5, 0.5),
        {name: Cell(9, 5, share) for name, share in kinds.items()},
        {"stacks": {value: Weight(9, 5, odds) for value, odds in weights.items()}},
    )
    assert looked_up(made, example()) == pytest.approx(sure, abs=0.001)


def test_dumps_alone_are_as_sure_as_their_grounds() -> None:
    known = table().recordings
    assert of_recordings(None) == round(min(known["none"].probability, 0.99), 2)
    assert of_recordings("shown") == round(min(known["shown"].probability, 0.99), 2)
    assert of_recordings(None) != of_recordings("shown")
