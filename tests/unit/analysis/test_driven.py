"""Jobs whose steps a driver carries: process 0 drives, 1 and 2 train, 3 scores, 4 generates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document import build_document
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.model import Trace
from tests.build import TraceBuilder

ROLES = (("driver", 0), ("actor", 0), ("actor", 1), ("reward", 0), ("agent", 0))
PHASES_S = {"rollout": 4.0, "logprob/old": 1.0, "train": 4.0, "sync": 1.0}


def driven(build: TraceBuilder) -> Trace:
    trace = build.build()
    processes = tuple(
        replace(process, role=role, rank=rank)
        for process, (role, rank) in zip(trace.processes, ROLES, strict=True)
    )
    return replace(trace, processes=processes, run=replace(trace.run, world_size=2))


def four_steps() -> TraceBuilder:
    build = TraceBuilder(ranks=5)
    for step in range(4):
        build.step(0, step, start_s=10 * step, phases=PHASES_S)
    return build


def seconds(analysis: Analysis, rank: int, phase: str) -> float:
    return float(analysis.used_seconds[:, rank, PHASES.index(phase)].mean())


def test_an_actor_is_a_rank_with_the_drivers_steps_and_its_own_work() -> None:
    build = four_steps()
    for step in range(4):
        at = 10 * step
        build.span(1, "train", at + 5.1, at + 7).span(1, "optimizer", at + 6, at + 7)
        build.span(2, "train", at + 5.1, at + 8.5)
    analysis = analyse(driven(build))
    assert analysis.ranks == (0, 1)
    assert analysis.step_s == 10
    assert seconds(analysis, 0, "optimizer") == pytest.approx(1)
    assert seconds(analysis, 0, "train") == pytest.approx(3)
    assert seconds(analysis, 1, "train") == pytest.approx(4)
    assert seconds(analysis, 1, "rollout") == pytest.approx(4)


def test_ranks_of_a_driver_wait_for_each_other_in_collectives() -> None:
    build = four_steps()
    for step in range(4):
        at = 10 * step
        for process, arrives in ((1, at + 6), (2, at + 8)):
            build.collective(process, step, arrives, at + 8.1)
    analysis = analyse(driven(build))
    waited = analysis.used_waited[:, :, PHASES.index("train")].mean(axis=0)
    assert waited.tolist() == pytest.approx([2, 0])


def test_rewards_count_from_when_nothing_is_generated_any_more() -> None:
    """Scoring lasts from 2 to 3.8 s of the driver's 4, generation until 3."""
    build = four_steps()
    for step in range(4):
        at = 10 * step
        build.span(4, "rollout/generate", at + 0.5, at + 3)
        build.span(3, "reward", at + 2, at + 3.8).span(3, "reward/judge", at + 2.1, at + 3.8)
    trace = driven(build)
    analysis = analyse(trace)
    for rank in (0, 1):
        assert seconds(analysis, rank, "reward") == pytest.approx(0.8)
        assert seconds(analysis, rank, "rollout") == pytest.approx(3.2)
    assert [entry.rank for entry in build_document(trace).run.ranks] == [0, 1]


def test_without_a_sign_of_generation_all_of_the_rollout_is_rollout() -> None:
    build = four_steps()
    for step in range(4):
        build.span(3, "reward/judge", 10 * step + 2, 10 * step + 3.8)
    assert seconds(analyse(driven(build)), 0, "reward") == 0


def test_a_hung_reward_is_open_in_every_rank() -> None:
    build = four_steps()
    build.span(4, "rollout/generate", 40.5, 42)
    build.open(3, "reward/judge", 41, 60).open(0, "rollout", 40, 60)
    entries = build_document(driven(build)).run.ranks
    assert [[span.name for span in entry.open] for entry in entries] == [
        ["rollout", "reward/judge"]
    ] * 2


def test_an_actor_that_ray_killed_at_the_end_has_finished_with_the_driver() -> None:
    trace = driven(four_steps())
    killed = tuple(replace(p, state="open") for p in trace.processes[1:])
    entries = build_document(replace(trace, processes=(trace.processes[0], *killed))).run.ranks
    assert [entry.state for entry in entries] == ["finished", "finished"]


def test_without_actors_the_driver_is_the_one_rank() -> None:
    trace = driven(four_steps())
    trace = replace(trace, processes=trace.processes[:1])
    analysis = analyse(trace)
    assert analysis.ranks == (0,)
    assert seconds(analysis, 0, "train") == pytest.approx(4)


def test_a_driver_without_steps_changes_nothing() -> None:
    trace = driven(TraceBuilder(ranks=5).span(1, "train", 0, 1))
    assert analyse(trace).trace is trace


def test_calls_side_by_side_are_one_span() -> None:
    """Eight calls in four threads are not eight calls in a row."""
    build = four_steps()
    for step in range(4):
        at = 10 * step
        build.span(4, "rollout/generate", at + 0.5, at + 1)
        for call in range(8):
            begun_s = at + 1 + 0.25 * call
            build.span(3, "reward/judge", begun_s, begun_s + 1, thread=call % 4)
    analysis = analyse(driven(build))
    spans, name = analysis.trace.spans, analysis.trace.names.index("reward/judge")
    rows = spans.select((spans.process == 1) & (spans.name == name))
    assert len(rows) == 4
    assert ((rows.end_ns - rows.start_ns) / 1e9).tolist() == pytest.approx([2.75] * 4)
