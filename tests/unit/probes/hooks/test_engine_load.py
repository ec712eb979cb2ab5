"""The counters of vLLM's engine: of its scheduler after each step, and of what a rollout gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.engine_load import EngineLoad
from tests.unit.probes.conftest import Recorded


@dataclass
class Scheduler:
    running: int
    waiting: int
    usage: float
    kv_cache_manager: Any = field(init=False)

    def __post_init__(self) -> None:
        self.kv_cache_manager = SimpleNamespace(usage=self.usage)

    def get_request_counts(self) -> tuple[int, int]:
        return self.running, self.waiting


def counters(recording: Recorded) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in recording.rows:
        if row.kind == "counter":
            values.setdefault(row.name.removeprefix("engine/"), []).append(row.value)
    return values


def outputs(prompt: int, *lengths: int) -> SimpleNamespace:
    completions = [SimpleNamespace(token_ids=[7] * length) for length in lengths]
    return SimpleNamespace(prompt_token_ids=[5] * prompt, outputs=completions)


@pytest.fixture
def load() -> EngineLoad:
    return EngineLoad()


def test_a_rollout_is_summed_up_and_the_next_begins_with_nothing(
    recording: Recorded, load: EngineLoad
) -> None:
    load.counts_preemptions()
    load.preempted(object(), 1.0)
    load.sample(Scheduler(2, 6, 0.5))
    load.sample(Scheduler(4, 0, 0.25))
    load.finish()
    load.sample(Scheduler(1, 1, 0.125))
    load.finish()
    values = counters(recording)
    shown = {name: values.pop(name) for name in ("running_requests", "waiting_requests")}
    assert shown == {"running_requests": [2.0], "waiting_requests": [6.0]}  # at most every 50 ms
    assert values == {
        "kv_cache_pct": [50.0],
        "steps": [2.0, 1.0],
        "running_requests_peak": [4.0, 1.0],
        "running_requests_mean": [3.0, 1.0],
        "waiting_requests_peak": [6.0, 1.0],
        "waiting_requests_mean": [3.0, 1.0],
        "kv_cache_peak_pct": [50.0, 12.5],
        "preemptions": [1.0, 0.0],
    }


def test_tokens_are_counted_where_the_completions_come(
    recording: Recorded, load: EngineLoad
) -> None:
    """The engine has another process: nothing of its scheduler is known in this one."""
    load.around(lambda: [outputs(3, 1, 2, 3, 4, 5), outputs(10, 0, 1024, 1025)])()
    assert counters(recording) == {
        "prompt_tokens": [45.0],
        "generated_tokens": [2064.0],
        "completions_of_1_to_1_tokens": [2.0],
        "completions_of_2_to_2_tokens": [1.0],
        "completions_of_3_to_4_tokens": [2.0],
        "completions_of_5_to_8_tokens": [1.0],
        "completions_of_513_to_1024_tokens": [1.0],
        "completions_of_1025_to_2048_tokens": [1.0],
    }


def test_a_rollout_that_fails_raises_what_it_raised_and_the_next_is_counted(
    recording: Recorded, load: EngineLoad
) -> None:
    def fail() -> list[Any]:
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        load.around(fail)()
    chat = load.around(load.around(lambda: [outputs(2, 4)]))  # a rollout within one is one
    assert len(chat()) == 1
    assert counters(recording)["generated_tokens"] == [4.0]


def test_outputs_of_another_shape_cost_their_counters_and_not_the_job(
    recording: Recorded, load: EngineLoad
) -> None:
    load.sample(Scheduler(1, 0, 0.0))
    assert load.around(lambda: ["text"])() == ["text"]
    assert counters(recording)["steps"] == [1.0]
    # Preemptions that nobody reports are unknown, and not none.
    assert not {"generated_tokens", "preemptions"} & counters(recording).keys()
    assert recording.header.errors == 1
