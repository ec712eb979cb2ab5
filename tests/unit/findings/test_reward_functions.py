"""Which reward function takes the time, and whether one rank scores for all."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.reward_functions import (
    call_seconds,
    function_names,
    functions,
    scorer_imbalance,
    typical,
)
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, run
from tests.unit.findings.recorded import Value, count, inside


def rewarded(**seconds: Value) -> TraceBuilder:
    """A run of 4 ranks whose reward phase of 2 s holds spans of these functions."""
    build = run({**HEALTHY, "reward": 2.0})
    for name, value in seconds.items():
        inside(build, f"reward/{name}", value)
    return build


def test_other_spans_of_the_phase_are_no_functions() -> None:
    build = rewarded(accuracy=1.0, gather=0.1, decode=0.1)
    inside(build, "reward/accuracy/parse", 0.5)
    build.span(0, "reward/accuracy_s", 0, 1)
    assert function_names(build.build()) == ["accuracy"]


def test_the_slowest_function_comes_first_and_one_that_took_nothing_not_at_all() -> None:
    build = rewarded(quick=0.2, slow=1.0)
    build.span(0, "reward/never", 1e6, 1e6 + 1)  # after all steps
    view = RunView.of(build.build())
    assert [f.name for f in functions(view)] == ["slow", "quick"]
    assert functions(view)[0].span == "reward/slow"
    assert functions(view)[0].own_s == pytest.approx(np.ones(4), rel=0.02)


def test_a_function_in_another_process_is_timed_by_its_counter() -> None:
    build = count(rewarded(slow=0.1), "reward/slow_s", 1.5, ranks=[0, 1, 2])
    (scoring,) = functions(RunView.of(build.build()))
    assert scoring.own_s.tolist() == [1.5, 1.5, 1.5, 0.0]
    assert scoring.seen_s == pytest.approx(np.full(4, 0.1), rel=0.02)


def test_a_function_counts_where_either_its_spans_or_its_counter_took_time() -> None:
    elsewhere = rewarded()
    elsewhere.span(0, "reward/remote", 1e6, 1e6 + 1)  # after all steps
    (remote,) = functions(RunView.of(count(elsewhere, "reward/remote_s", 1.5).build()))
    assert (remote.seen_s.tolist(), remote.own_s.tolist()) == ([0.0] * 4, [1.5] * 4)
    (waited,) = functions(RunView.of(count(rewarded(slow=0.5), "reward/slow_s", 0.0).build()))
    assert waited.seen_s == pytest.approx(np.full(4, 0.5), rel=0.02)
    assert waited.own_s.tolist() == [0.0] * 4


def test_one_slow_rank_does_not_speak_for_all() -> None:
    assert typical(np.array([9.0, 1.0, 1.0, 1.0])) == 1.0
    assert typical(np.array([1.0, 3.0])) == 1.0
    assert typical(np.array([1.0, 2.0, 3.0])) == 2.0
    assert typical(np.array([])) == 0.0


def test_calls_come_from_counters_or_else_from_spans_and_idle_ranks_have_none() -> None:
    spans = RunView.of(rewarded(slow=lambda rank, _: 1.0 if rank else 0.0).build())
    assert [len(calls) for calls in call_seconds(spans, "slow")] == [6, 6, 6]
    counted = count(rewarded(slow=0.1), "reward/slow_s", 1.5, ranks=[2])
    (calls,) = call_seconds(RunView.of(counted.build()), "slow")
    assert calls.tolist() == [1.5] * 6


def test_a_batch_in_which_a_function_did_nothing_is_no_call() -> None:
    build = count(rewarded(slow=0.1), "reward/slow_s", lambda _, step: 1.5 * (step % 2), ranks=[2])
    (calls,) = call_seconds(RunView.of(build.build()), "slow")
    assert calls.tolist() == [1.5] * 3


def alone(extra: float, phases: dict[str, float] | None = None) -> TraceBuilder:
    return run({**HEALTHY, "reward": 0.1, **(phases or {})}, slow={2: {"reward": extra}})


def test_a_rank_that_scores_for_all_is_told_by_part_and_share() -> None:
    top = scorer_imbalance(RunView.of(alone(3.0).build()))
    assert top is not None
    assert (top.rank, top.column, top.counts, top.alone) == (2, 2, True, True)
    assert top.seconds == pytest.approx(3.1, rel=0.02)
    assert top.others_s == pytest.approx(0.1, rel=0.02)
    assert top.part == pytest.approx(3.1 / 3.4, rel=0.02)
    assert top.share == pytest.approx(3.0 / 12.8, rel=0.03)


def test_little_time_and_a_part_that_others_share_do_not_count() -> None:
    little = scorer_imbalance(RunView.of(alone(0.4, {"reward": 0.001}).build()))
    assert little is not None
    assert little.part > 0.9
    assert not little.counts
    shared = scorer_imbalance(RunView.of(alone(3.0, {"reward": 1.0}).build()))
    assert shared is not None
    assert shared.share > 0.2
    assert not shared.counts
    assert not shared.alone


def _of_rank(seconds: dict[int, float], rank: int, number: int) -> float:
    del number
    return seconds.get(rank, 0.0)


def test_spans_tell_whether_others_call_the_functions() -> None:
    for seconds_by_rank, expected in (({2: 3.0, 0: 0.05}, False), ({2: 3.0}, True)):
        build = alone(3.0)
        inside(build, "reward/slow", partial(_of_rank, seconds_by_rank))
        top = scorer_imbalance(RunView.of(build.build()))
        assert top is not None
        assert top.alone is expected


def test_one_rank_or_no_scoring_has_no_imbalance() -> None:
    assert scorer_imbalance(RunView.of(run(ranks=1).build())) is None
    phases = {name: s for name, s in HEALTHY.items() if name != "reward"}
    assert scorer_imbalance(RunView.of(run(phases).build())) is None
