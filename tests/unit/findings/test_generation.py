from __future__ import annotations

import pytest

from grpo_doctor.findings import RunView, rollout_engine
from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import counted, run, step_starts


def view(**values: float) -> RunView:
    return RunView.of(counted(run(), {f"engine/{n}": v for n, v in values.items()}).build())


def test_samples_are_those_of_the_steps_and_all_engines() -> None:
    counters = view(steps=100.0)
    assert len(rollout_engine.per_rollout(counters, "steps")) == 6 * 4
    assert rollout_engine.mean_of(counters, "steps") == 100
    assert rollout_engine.mean_of(counters, "never") is None


def test_lengths_are_added_up_by_bucket() -> None:
    counters = view(completions_of_3_to_4_tokens=9.0, completions_of_5_to_8_tokens=1.0)
    counts = rollout_engine.lengths(counters)
    assert counts == {4: 9.0 * 24, 8: 24.0}
    assert rollout_engine.length_at(counts, 0.9) == 4
    assert rollout_engine.length_at(counts, 0.95) == 8
    assert rollout_engine.length_at({}, 0.9) is None


def test_a_tail_is_the_time_with_few_left() -> None:
    build: TraceBuilder = run()
    for rank in range(4):
        times = [start + at for start in step_starts() for at in (0.2, 2.2, 4.2)]
        build.series(
            "engine/running_requests", "", times, [50.0, 5.0, 0.0] * 6, scope="counter", rank=rank
        )
    end = rollout_engine.tail(RunView.of(build.build()), 0.1)
    assert end is not None
    assert end.peak == 50
    assert end.seconds == pytest.approx(2.0)
    assert end.share == pytest.approx(2.0 / 5.05, rel=0.01)
    assert rollout_engine.tail(view(), 0.1) is None


def test_an_engine_that_ran_nothing_has_no_tail() -> None:
    times = [start + at for start in step_starts() for at in (0.2, 4.2)]
    idle, busy = [0.0, 0.0] * 6, [8.0, 0.0] * 6
    build = run()
    build.series("engine/running_requests", "", times, idle, scope="counter", rank=0)
    assert rollout_engine.tail(RunView.of(build.build()), 0.1) is None
    build.series("engine/running_requests", "", times, busy, scope="counter", rank=1)
    end = rollout_engine.tail(RunView.of(build.build()), 0.1)
    assert end is not None
    assert (end.peak, end.share, end.seconds) == (8.0, 0.0, 0.0)
