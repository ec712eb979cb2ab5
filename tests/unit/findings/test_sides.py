"""Rollout beside training: what was dropped, what GPUs each side has, and how many to move."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.sides import Sides, sides_of, slowest_part, tools_of_trajectories
from tests.build import TraceBuilder

SO_FAR = "fully_async/count/dropped_stale_samples", "fully_async/count/total_generated_samples"
LOGGED = "sample/dropped_stale_total", "batch/samples_per_step"
RATES = "rollout/generated_tok_s", "perf/trained_tok_s_wall_clock"


def view(ranks: int = 1, gpus: int = 0, knobs: dict[str, Any] | None = None) -> RunView:
    build = TraceBuilder(ranks=ranks, knobs=knobs)
    for rank in range(ranks):
        build.step(rank, 0, 0.0, {"train": 1.0})
    for index in range(gpus):
        build.gpu(f"GPU-{index}", index=index)
    return RunView.of(build.build())


def saying(**metrics: float) -> RunView:
    build = TraceBuilder()
    for step in (1, 2):
        build.metrics(step, **metrics)
    return RunView.of(build.build())


@pytest.mark.parametrize(
    ("metrics", "unused"),
    [
        ({SO_FAR[0]: 3.0, SO_FAR[1]: 12.0}, 0.25),
        ({SO_FAR[0]: 30.0, SO_FAR[1]: 12.0}, 1.0),
        ({SO_FAR[0]: 3.0, SO_FAR[1]: 0.0}, None),
        ({SO_FAR[0]: 3.0}, None),
        ({SO_FAR[1]: 12.0}, None),
        ({LOGGED[0]: 2.0, LOGGED[1]: 6.0}, 0.25),
        ({LOGGED[1]: 6.0}, 0.0),
        ({LOGGED[0]: 2.0}, None),
        ({RATES[0]: 100.0, RATES[1]: 75.0}, 0.25),
        ({RATES[0]: 100.0, RATES[1]: 125.0}, 0.0),
        ({RATES[0]: 100.0}, None),
        ({RATES[1]: 75.0}, None),
        ({RATES[0]: 0.0, RATES[1]: 75.0}, None),
        # Rates also count what is in the queue still: they are asked last.
        ({LOGGED[0]: 2.0, LOGGED[1]: 6.0, RATES[0]: 100.0, RATES[1]: 50.0}, 0.25),
        ({}, None),
    ],
)
def test_what_is_never_trained_on_by_what_the_framework_counts(
    metrics: dict[str, float], unused: float | None
) -> None:
    assert sides_of(saying(**metrics)).unused == unused


@pytest.mark.parametrize(
    ("ranks", "gpus", "tensor", "data", "sides"),
    [
        (4, 6, None, None, (4, 2)),
        (4, 6, 8, None, (4, 2)),
        (4, 5, None, None, (4, 1)),
        (4, 4, 2, None, (4, 2)),
        (4, 4, 2, 3, (4, 6)),
        (4, 0, 0, 2, (4, 2)),
        (4, 0, 1, "auto", (4, 1)),
        (4, 4, None, None, None),
        (0, 0, 2, None, None),
    ],
)
def test_gpus_that_do_not_train_generate_or_else_as_many_as_the_engine_is_set_to(
    ranks: int, gpus: int, tensor: Any, data: Any, sides: tuple[int, int] | None
) -> None:
    parts = {"vllm.tensor_parallel_size": tensor, "vllm.data_parallel_size": data}
    knobs = {name: value for name, value in parts.items() if value is not None}
    assert sides_of(view(ranks, gpus, knobs)).gpus == sides


@pytest.mark.parametrize(
    ("waits", "gpus", "to_move"),
    [
        ((0.0, 0.0), (4, 4), 0),
        ((0.5, 0.0), (4, 4), 1),
        ((0.0, 0.5), (4, 4), -1),
        # A side that has no work keeps one.
        ((0.0, 1.0), (4, 4), -3),
        ((1.0, 0.0), (4, 4), 3),
        ((1.0, 1.0), (4, 4), None),
        ((0.5, 0.0), None, None),
    ],
)
def test_gpus_go_to_the_side_that_is_waited_for(
    waits: tuple[float, float], gpus: tuple[int, int] | None, to_move: int | None
) -> None:
    assert Sides(*waits, unused=None, gpus=gpus).gpus_to_move() == to_move


def test_what_is_dropped_adds_to_the_surplus_of_a_rollout() -> None:
    assert Sides(0.0, 0.2, unused=0.5, gpus=None).surplus == pytest.approx(0.6)
    assert Sides(0.0, 0.2, unused=None, gpus=None).surplus == pytest.approx(0.2)


TRAJECTORY = {
    "tools/latency_s": 2.0,
    "tools/parallel_calls_mean": 1.5,
    "rollout/turns_mean": 3.0,
    "rollout/duration_s": 12.0,
}


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 0.5),
        ({"rollout/turns_mean": 1.0}, 0.0),
        ({"rollout/turns_mean": 0.5}, 0.0),
        ({"tools/latency_s": 9.0}, 1.0),
        ({"rollout/duration_s": 0.0}, None),
        *(({key: None}, None) for key in TRAJECTORY),
    ],
)
def test_the_part_of_a_trajectory_in_tools_is_known_where_all_of_it_was_said(
    changes: dict[str, float | None], share: float | None
) -> None:
    metrics = {key: value for key, value in {**TRAJECTORY, **changes}.items() if value is not None}
    assert tools_of_trajectories(saying(**metrics)) == share


def test_the_slowest_tool_is_the_one_that_takes_most_time_whenever_it_is_called() -> None:
    build = TraceBuilder(ranks=2)
    build.roles[1] = "rollout"
    build.step(0, 0, 0.0, {"train": 100.0})
    build.span(1, "rollout/tools/search", 0.0, 9.0)
    for at in (50.0, 60.0, 70.0):
        build.span(1, "rollout/tools/look_up", at, at + 2.0)
    build.span(0, "rollout/tools/of_a_rank", 0.0, 50.0)
    tools = RunView.of(build.build())
    assert slowest_part(tools, "rollout/tools") == "search"
    assert slowest_part(tools, "reward") is None
