from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.critical import Segment, critical_path
from grpo_doctor.trace.model import Kind
from tests.build import SECOND, TraceBuilder
from tests.unit.analysis.test_chains import chain


def summary(path: list[Segment]) -> list[tuple[int | None, str, str, float, float]]:
    return [(s.rank, s.phase, s.kind, s.start_ns / SECOND, s.end_ns / SECOND) for s in path]


def test_the_path_goes_through_the_last_arrivers() -> None:
    path = critical_path(analyse(chain().build()), 0)
    ranks = [s.rank for s in path]
    assert ranks[0] == 2  # rank 2's work until 9 s, then 1's until 10 s, then whoever ends last
    assert [rank for rank, following in itertools.pairwise(ranks) if rank != following] == [2, 1]
    assert path[0].start_ns == 0
    assert path[-1].end_ns == 12 * SECOND


def test_what_the_rank_did_is_said() -> None:
    build = TraceBuilder(ranks=2)
    build.step(0, 0, 0.0, {"rollout": 2.0, "train": 9.0}, end_s=12.0)
    build.step(1, 0, 0.0, {"rollout": 6.0, "train": 5.0}, end_s=11.5)
    build.collective(0, 1, 4.0, 8.0).collective(1, 1, 7.0, 8.0)
    path = summary(critical_path(analyse(build.build()), 0))
    assert path == [
        (1, "rollout", "work", 0, 6), (1, "train", "work", 6, 7), (0, "train", "transfer", 7, 8),
        (0, "train", "work", 8, 11), (0, "unattributed", "idle", 11, 12),
    ]  # fmt: skip


def test_an_engine_server_is_a_lane_of_its_own() -> None:
    build = TraceBuilder(knobs={"vllm.use": True, "vllm.mode": "server"})
    build.step(0, 0, 0.0, {"rollout": 6.0, "train": 4.0})
    build.span(0, "rollout/generate", 1.0, 6.0, depth=2)
    path = critical_path(analyse(build.build()), 0)
    assert [(s.lane, s.rank, s.name) for s in path] == [
        ("rank", 0, "rollout"), ("engine", None, "rollout/generate"), ("rank", 0, "train"),
    ]  # fmt: skip


def test_a_step_that_nobody_ended_has_no_path() -> None:
    build = TraceBuilder().row(Kind.STEP, 0, "step", 0, 5, depth=0, value=1, open=True)
    assert critical_path(analyse(build.build()), 0) == []


calls = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 6), st.sampled_from("ab")),
    max_size=24,
)


@settings(deadline=None, max_examples=100)
@given(calls)
def test_a_path_has_neither_holes_nor_circles(collectives: list[tuple[int, int, int, str]]) -> None:
    build = TraceBuilder(ranks=4)
    for rank in range(4):
        build.step(rank, 0, 0.0, {"train": 20.0}, end_s=24.0 + rank)
    numbers: dict[tuple[int, str], int] = {}
    for rank, start, length, group in sorted(collectives, key=lambda call: call[1]):
        number = numbers[rank, group] = numbers.get((rank, group), 0) + 1
        build.collective(rank, number, start, start + length, group=group)
    path = critical_path(analyse(build.build()), 0)
    assert path[0].start_ns == 0
    assert path[-1].end_ns == 27 * SECOND
    assert all(
        segment.end_ns == following.start_ns for segment, following in itertools.pairwise(path)
    )
    assert sum(s.end_ns - s.start_ns for s in path) == pytest.approx(27 * SECOND)
