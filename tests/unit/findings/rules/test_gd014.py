from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    STEPS,
    counted,
    finding_in,
    missing,
    passed,
    run,
    step_s,
    step_starts,
    value,
    with_knobs,
)

KNOBS = with_knobs(rollout__max_completion_length=4096)


def decaying(
    full_s: float, *, peak: float = 64.0, knobs: dict[str, object] = KNOBS
) -> TraceBuilder:
    """Engines that are full for so long and then have two requests left, of 5 s of rollout."""
    build = run(knobs=knobs)
    times: list[float] = []
    values: list[float] = []
    for start in step_starts():
        times += [start + 0.15, start + 0.15 + full_s, start + 5.5]
        values += [peak, 2.0, 0.0]
    for rank in range(4):
        build.series("engine/running_requests", "", times, values, scope="counter", rank=rank)
    return build


def with_lengths(build: TraceBuilder) -> TraceBuilder:
    """63 of 64 completions of up to 512 tokens, one of up to 4096."""
    return counted(
        build,
        {
            "engine/completions_of_257_to_512_tokens": 63.0,
            "engine/completions_of_2049_to_4096_tokens": 1.0,
        },
    )


def apart(ratio: float | None, train_s: float = 3.0) -> TraceBuilder:
    """Another rank's rollout takes 3 s longer in each step."""
    build = TraceBuilder(ranks=2, knobs=KNOBS)
    for number in range(STEPS):
        at, late = 9.0 * number, number % 2
        for rank in (0, 1):
            rollout = 5.0 if rank == late else 2.0
            build.step(
                rank, number, at, {"rollout": rollout, "reward": 5.0 - rollout, "train": train_s}
            )
            build.collective(rank, number, at + rollout, at + 5.0)
        if ratio is not None:
            build.metrics(
                number, **{"completions/max_length": 100 * ratio, "completions/mean_length": 100.0}
            )
    return build


def sick() -> TraceBuilder:
    return with_lengths(decaying(1.0))


def well() -> TraceBuilder:
    return decaying(4.6)


def test_the_time_with_a_nearly_empty_engine_is_the_cost() -> None:
    finding = finding_in(sick(), "GD014")
    assert value(finding, "tenth of the requests left") == pytest.approx(5.05 - 1.0, abs=0.05)
    assert finding.cost == pytest.approx(4.05 / step_s(), abs=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.9)
    assert "engine's 64 requests" in finding.cause


def test_a_limit_that_nearly_all_stay_below_is_advised() -> None:
    (fix,) = finding_in(sick(), "GD014").fixes
    assert (fix.knob, fix.after) == ("rollout.max_completion_length", 512)
    assert fix.safety == "changes-algorithm"
    assert "2% of this run's completions" in fix.risk


def test_without_lengths_more_prompts_are() -> None:
    (fix,) = finding_in(decaying(1.0), "GD014").fixes
    assert fix.knob == "rollout.async"
    assert "more prompts" in fix.risk


def test_an_engine_that_stays_full_passes() -> None:
    assert "9% of the rollout" in passed(well(), "GD014")


def test_an_engine_of_few_requests_always_ends_with_few() -> None:
    assert "tails take 0.0%" in passed(decaying(1.0, peak=8.0), "GD014")


def test_ranks_that_finish_apart_by_turns_wait_for_lengths() -> None:
    finding = finding_in(apart(4.0), "GD014")
    # The slowest takes 5 s, each rank 3.5 s in the mean.
    assert value(finding, "slowest rank") == pytest.approx(1.5)
    assert finding.cost == pytest.approx(1.5 / 8.0)
    assert (finding.severity, finding.confidence) == ("medium", 0.6)


def test_ranks_that_finish_apart_with_equal_lengths_do_not() -> None:
    assert "tails take 0.0%" in passed(apart(1.1), "GD014")


def test_one_rank_that_is_always_late_is_no_tail() -> None:
    build = run(slow={1: {"rollout": 3.0}}, knobs=KNOBS)
    for number in range(STEPS):
        build.metrics(number, **{"completions/max_length": 400.0, "completions/mean_length": 100.0})
    assert "tails take 0" in passed(build, "GD014")


def test_without_curve_or_lengths_it_says_what_to_record() -> None:
    assert "engine/running_requests" in missing(run(), "GD014")


@pytest.mark.parametrize(("peak", "counts"), [(16.0, True), (15.0, False)])
def test_sixteen_requests_are_the_fewest_that_have_a_tail(peak: float, counts: bool) -> None:
    build = with_running(apart(None), [(0.0, peak), (1.0, 1.0), (2.0, 0.0)])
    if counts:
        assert f"engine's {peak:.0f} requests are left" in finding_in(build, "GD014").cause
    else:
        assert "tails take 0.0%" in passed(build, "GD014")


@pytest.mark.parametrize(("ratio", "counts"), [(3.0, True), (2.99, False)])
def test_lengths_differ_from_three_times_the_mean_on(ratio: float, counts: bool) -> None:
    if counts:
        assert finding_in(apart(ratio), "GD014").confidence == 0.6
    else:
        assert "tails take 0.0%" in passed(apart(ratio), "GD014")


def test_one_length_without_the_other_says_nothing() -> None:
    for name in ("completions/max_length", "completions/mean_length"):
        build = with_running(apart(None), [(0.0, 8.0), (4.0, 0.0)])
        for number in range(STEPS):
            build.metrics(number, **{name: 400.0})
        assert "tails take 0.0%" in passed(build, "GD014")


def with_running(build: TraceBuilder, samples: list[tuple[float, float]]) -> TraceBuilder:
    """What ran in the engines of `apart` at some moments of each rollout."""
    times = [9.0 * number + at for number in range(STEPS) for at, _ in samples]
    values = [requests for _ in range(STEPS) for _, requests in samples]
    for rank in (0, 1):
        build.series("engine/running_requests", "", times, values, scope="counter", rank=rank)
    return build


@pytest.mark.parametrize(
    ("emptied_s", "told_by", "confidence", "severity"),
    [
        (1.5, "engine's 64 requests", 0.9, "high"),  # as long as the ranks finish apart
        (1.4, "one rank, not always the same", 0.6, "medium"),
    ],
)
def test_a_tail_is_told_by_the_engine_where_it_is_as_long_as_ranks_are_apart(
    emptied_s: float, told_by: str, confidence: float, severity: str
) -> None:
    # Of rollouts of five seconds and of two, of which each engine has as many.
    build = apart(4.0, train_s=1.0)
    finding = finding_in(
        with_running(build, [(0.0, 64.0), (2.0 - emptied_s, 2.0), (2.0, 0.0)]), "GD014"
    )
    assert told_by in finding.cause
    assert (finding.confidence, finding.severity) == (confidence, severity)


@pytest.mark.parametrize(("limit", "advised"), [(512 / 0.75, True), (511 / 0.75, False)])
def test_a_limit_is_advised_where_it_cuts_a_quarter(limit: float, advised: bool) -> None:
    build = with_lengths(decaying(1.0))
    build.knobs["rollout.max_completion_length"] = limit
    knobs = [fix.knob for fix in finding_in(build, "GD014").fixes]
    assert ("rollout.max_completion_length" in knobs) is advised


@pytest.mark.parametrize(("full_s", "severity"), [(4.0, "medium"), (1.0, "high")])
def test_an_engine_that_was_seen_nearly_empty_is_as_grave_as_it_is_long(
    full_s: float, severity: str
) -> None:
    assert finding_in(decaying(full_s - 0.9), "GD014").severity == severity
