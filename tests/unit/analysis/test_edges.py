"""What lies exactly at an edge: touching spans, equal times, the first phase, nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.analysis.accounting import Accounting
from grpo_doctor.analysis.device import device_seconds, on_device_clock
from grpo_doctor.analysis.driven import by_rank
from grpo_doctor.analysis.gpu import gpu_memory, offloaded_bytes, rank_gpus
from grpo_doctor.analysis.per_step import counted, unattributed_span_seconds
from grpo_doctor.analysis.regimes import steady_state
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.sampled import max_over
from grpo_doctor.analysis.steps import warmup_steps
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import Intervals, innermost
from grpo_doctor.trace.model import Clock, Kind, Process, Trace
from tests.build import SECOND, TraceBuilder


def one_step(ranks: int = 1, *, length_s: float = 10.0) -> TraceBuilder:
    build = TraceBuilder(ranks=ranks)
    for rank in range(ranks):
        build.step(rank, 0, 0.0, {"train": length_s})
    return build


def with_processes(trace: Trace, **changes: Any) -> Trace:
    return replace(trace, processes=tuple(replace(p, **changes) for p in trace.processes))


def times_s(trace: Trace, name: str) -> list[tuple[float, float]]:
    spans = trace.spans
    rows = (spans.name == trace.names.index(name)) & (spans.kind == Kind.SPAN)
    pairs = zip(spans.start_ns[rows].tolist(), spans.end_ns[rows].tolist(), strict=True)
    return [(start / SECOND, end / SECOND) for start, end in pairs]


# --- spans -------------------------------------------------------------------------------------


def test_what_ended_owns_nothing_where_an_outer_span_ended_too() -> None:
    pieces, owner = innermost(np.array([0, 1, 5]), np.array([3, 2, 6]))
    assert owner.tolist() == [0, 1, 0, 2]
    assert pieces.start_ns.tolist() == [0, 1, 2, 5]


def test_an_empty_span_cuts_nothing() -> None:
    pieces, _ = innermost(np.array([0, 5]), np.array([10, 5]))
    assert (pieces.start_ns.tolist(), pieces.end_ns.tolist()) == ([0], [10])


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_is_counted_with_and_without_steps(phase: str) -> None:
    build = TraceBuilder().step(0, 0, 0.0, {phase: 5.0}, end_s=8.0)
    assert analyse(build.build()).share(phase) == pytest.approx(5 / 8)
    assert analyse(build.build()).share("unattributed") == pytest.approx(3 / 8)
    without = TraceBuilder().span(0, "other", 0, 9).span(0, phase, 1, 6, thread=1).build()
    assert len(analyse(without).tracks[0].of(CODES[phase])) == 1


def test_a_span_of_the_users_that_phases_cover_leaves_nothing_unattributed() -> None:
    build = one_step().span(0, "covered", 1, 3, depth=0)
    build.row(Kind.SPAN, 0, "train", 1, 3, depth=1)
    assert unattributed_span_seconds(analyse(build.build())) == {}


# --- steps -------------------------------------------------------------------------------------


def test_a_step_that_began_with_the_recording_has_bounds() -> None:
    start, end = analyse(one_step(2).build()).steps.bounds_ns
    assert (start.tolist(), end.tolist()) == ([0], [10 * SECOND])


def test_two_steps_of_one_begin_share_no_time_and_neither_window_is_empty() -> None:
    build = one_step().row(Kind.STEP, 0, "step", 0, 6, depth=0, value=1)
    windows, rows = analyse(build.build()).steps.windows(0)
    assert (windows.end_ns > windows.start_ns).all()
    assert len(windows) == len(rows) == 1


def test_at_least_three_steps_are_kept_however_long_each_is_beside_the_later_ones() -> None:
    assert warmup_steps(np.array([64.0, 32, 16, 8, 4, 2])) == 3


def test_no_time_has_no_shares() -> None:
    table = np.zeros((1, 1))
    rows = np.zeros(1, dtype=np.intp)
    assert Accounting(table, table, table, table).shares(rows, rows) == {}


# --- which steps are alike ---------------------------------------------------------------------


@pytest.mark.parametrize("cut", [3, 4, 5, 9, 10])
def test_a_level_ends_exactly_where_the_steps_become_shorter(cut: int) -> None:
    assert steady_state(np.array([14.0] * cut + [10.0] * (20 - cut)))[0] == cut


def rising(by: float, count: int) -> NDArray[np.float64]:
    return np.array([1 + by * number for number in range(count)])


def test_eight_steps_of_which_each_is_longer_are_a_drift() -> None:
    assert steady_state(rising(0.02, 8))[0] is None


def test_seven_steps_are_too_few_for_a_drift_and_two_in_disorder_make_it_chance() -> None:
    assert steady_state(rising(0.1, 7))[0] == 0
    assert steady_state(rising(0.02, 8)[[0, 1, 2, 4, 3, 5, 6, 7]])[0] == 0


def test_a_drift_below_a_tenth_of_the_step_is_none() -> None:
    # From the first to the last step 8.4%: 7 times 0.012 of 1.042.
    assert steady_state(rising(0.012, 8))[0] == 0


# --- counters and samples ----------------------------------------------------------------------


def test_what_was_sampled_is_no_counter_of_the_same_name() -> None:
    build = one_step().series("images", "", [1, 2], [3, 4], scope="counter", rank=0)
    build.series("images", "", [1, 2], [30, 40], scope="host", rank=0)
    assert counted(analyse(build.build()), "images").tolist() == [[7.0]]


def test_of_two_samples_of_one_moment_the_later_holds() -> None:
    series = TraceBuilder().series("x", "", [1, 1, 2], [9, 3, 4]).build().series[0]
    assert max_over(series, Intervals(np.array([0]), np.array([SECOND + 5]))) == 3


# --- GPUs --------------------------------------------------------------------------------------


def two_gpus(**second: Any) -> Trace:
    build = one_step().gpu("a", index=1).gpu("b", index=0)
    for uuid in "ab":
        build.series("gpu.memory_used", "B", [0, 9], [1e9, 2e9], scope="gpu", gpu=uuid)
    trace = build.build()
    return replace(trace, gpus=(trace.gpus[0], replace(trace.gpus[1], **second)))


@pytest.mark.parametrize("second", [{"visible": False}, {"memory_total_bytes": 0}])
def test_memory_is_told_of_gpus_that_are_visible_and_know_their_size(
    second: dict[str, Any],
) -> None:
    trace = two_gpus(**second)
    assert [memory.gpu.uuid for memory in gpu_memory(trace, analyse(trace).tracks)] == ["a"]


def test_a_gpu_that_the_job_cannot_see_is_no_ranks() -> None:
    assert rank_gpus(two_gpus(visible=False)) == {0: "a"}


def test_a_ranks_gpu_is_where_its_memory_is_by_samples_that_name_both() -> None:
    build = one_step().gpu("a").gpu("b", index=1)
    for gpu, rank, size in ((None, 0, 9e9), ("b", None, 8e9), ("a", 0, 2e9), ("b", 0, 2e9)):
        build.series("gpu.process_memory", "B", [0, 9], [0, size], scope="gpu", gpu=gpu, rank=rank)
    assert rank_gpus(build.build()) == {0: "a"}


def test_nothing_moved_is_not_known_to_be_offloaded() -> None:
    build = TraceBuilder().gpu("a").step(0, 0, 0.0, {"offload": 1.0, "rollout": 5.0})
    build.series("gpu.memory_used", "B", [0, 6], [5e9, 5e9], scope="gpu", gpu="a")
    build.series("offload/bytes", "B", [1], [0], scope="counter", rank=0)
    trace = build.build()
    assert offloaded_bytes(trace, analyse(trace).tracks) is None


# --- the GPU's clock ---------------------------------------------------------------------------


def measured(*spans: tuple[str, float, float, float]) -> Trace:
    """Spans one after the other, with begin, end and what the GPU's events measured, in seconds."""
    build = one_step(length_s=20.0)
    for name, start_s, end_s, gpu_s in spans:
        build.span(0, name, start_s, end_s, depth=2)
        milliseconds = round(gpu_s * 1e3, 6)
        build.row(Kind.CUDA_SPAN, 0, name, start_s, end_s, depth=2, value=milliseconds)
    return on_device_clock(build.build())


@pytest.mark.parametrize("gpu_s", [1.0, 1.0005, 0.9995, 1.001, 0.999])
def test_clocks_that_differ_by_at_most_a_millisecond_move_nothing(gpu_s: float) -> None:
    trace = measured(("a", 1, 2, gpu_s), ("b", 2, 3, 1.0))
    assert times_s(trace, "a") == [(1, 2)]
    assert times_s(trace, "b") == [(2, 3)]


@pytest.mark.parametrize("gpu_s", [0.9995, 0.999])
def test_beside_a_span_that_is_moved_one_that_agrees_stays(gpu_s: float) -> None:
    trace = measured(("a", 1, 2, gpu_s), ("b", 4, 5, 3.0))
    assert times_s(trace, "a") == [(1, 2)]


def test_a_span_begins_where_the_gpu_was_done_with_the_one_that_it_touches() -> None:
    trace = measured(("a", 1, 2, 3.0), ("b", 2, 5, 1.0))
    (a,), (b,) = times_s(trace, "a"), times_s(trace, "b")
    assert a == pytest.approx((1, 4), abs=1e-4)
    assert a[1] <= 4  # too little is mended where the host waits next, too much is not
    assert b == pytest.approx((4, 5), abs=1e-4)


def test_a_span_in_which_the_gpu_had_nothing_to_do_begins_with_its_events() -> None:
    assert times_s(measured(("a", 1, 4, 0.0)), "a") == [(4, 4)]


def gpu_seconds(*spans: tuple[str, float, float, int, float], ranks: int = 1) -> dict[str, float]:
    """Of phases, where each span is a name, begin, end, depth and what the GPU's events measured;
    of several ranks, spans are dealt out in turn."""
    build = one_step(ranks, length_s=20.0)
    for number, (name, start_s, end_s, depth, gpu_s) in enumerate(spans):
        rank = number % ranks
        build.row(Kind.CUDA_SPAN, rank, name, start_s, end_s, depth=depth, value=gpu_s * 1e3)
    return dict(analyse(build.build()).device_seconds)


def test_a_span_that_ends_with_the_one_around_it_is_within_it() -> None:
    inner = gpu_seconds(("rollout", 1, 5, 1, 4.0), ("reward", 3, 5, 2, 1.0))
    assert inner == pytest.approx({"rollout": 3, "reward": 1})


def test_a_span_that_was_queued_in_no_time_is_not_within_the_one_before() -> None:
    seconds = gpu_seconds(("train", 1, 5, 1, 4.0), ("optimizer", 5, 5, 1, 3.0))
    assert seconds == pytest.approx({"train": 4, "optimizer": 3})


def test_each_rank_has_its_own_gpus_seconds_and_the_run_their_mean() -> None:
    two = (("train", 1.0, 5.0, 1, 4.0), ("train", 1.0, 5.0, 1, 2.0))
    assert gpu_seconds(*two, ranks=2) == pytest.approx({"train": 3})
    trains = (*two, ("rollout", 6.0, 8.0, 1, 1.0))
    assert gpu_seconds(*trains, ranks=2) == pytest.approx({"train": 3, "rollout": 0.5})


@pytest.mark.parametrize(("role", "expected"), [("actor", {"train": 4.0}), ("reward", {})])
def test_of_helpers_of_a_rank_its_actors_compute_on_its_gpu(
    role: str, expected: dict[str, float]
) -> None:
    build = TraceBuilder(ranks=2).step(0, 0, 0.0, {"train": 10.0})
    build.row(Kind.CUDA_SPAN, 1, "train", 1, 5, depth=1, value=4e3)
    trace = build.build()
    first, helper = trace.processes
    trace = replace(trace, processes=(first, replace(helper, rank=0, role=role)))
    analysis = analyse(trace)
    assert device_seconds(trace, analysis.ranks, analysis.steps) == pytest.approx(expected)


# --- a driver and its actors -------------------------------------------------------------------


def driven(build: TraceBuilder, *roles: str) -> Trace:
    trace = build.build()
    processes = zip(trace.processes, roles, strict=True)
    return replace(trace, processes=tuple(replace(p, role=r, rank=0) for p, r in processes))


def seconds(trace: Trace, phase: str) -> float:
    analysis = analyse(trace)
    return float(analysis.used_seconds[:, 0, CODES[phase]].mean())


def test_a_driver_without_steps_drives_nothing() -> None:
    trace = driven(
        TraceBuilder(ranks=2).span(0, "rollout", 0, 3).span(1, "train", 0, 3), "driver", "actor"
    )
    assert by_rank(trace) is trace


def test_the_drivers_story_is_that_of_the_thread_with_its_steps() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(4):
        build.step(0, number, 10.0 * number, {"train": 6.0, "sync": 4.0})
        for part in range(5):
            build.span(0, "checkpoint", 10 * number + part, 10 * number + part + 1, thread=7)
    assert seconds(driven(build, "driver", "actor"), "train") == pytest.approx(6)


def test_without_actors_everything_else_that_was_recorded_stays() -> None:
    build = TraceBuilder(ranks=2).step(0, 0, 0.0, {"rollout": 5.0}).span(0, "mine", 1, 2, thread=7)
    trace = driven(build.span(1, "rollout/engine", 1, 4), "driver", "rollout")
    assert len(by_rank(trace).spans) == len(trace.spans)
    assert times_s(by_rank(trace), "mine") == [(1, 2)]
    assert times_s(by_rank(trace), "rollout/engine") == [(1, 4)]


@pytest.mark.parametrize(("role", "name"), [("actor", "optimizer"), ("reward", "reward")])
def test_of_spans_of_one_extent_the_one_that_works_is_within_the_drivers(
    role: str, name: str
) -> None:
    build = TraceBuilder(ranks=3)
    for number in range(4):
        at = 10.0 * number
        build.step(0, number, at, {"rollout": 5.0, "train": 5.0})
        begin = at + 5 * (role == "actor")
        build.span(1, name, begin, begin + 5)
        build.span(2, "rollout/engine", at - 2, at)
    assert seconds(driven(build, "driver", role, "agent"), name) == pytest.approx(5)


# --- waits -------------------------------------------------------------------------------------


def waiting(*starts_s: float) -> TraceBuilder:
    build = one_step(len(starts_s), length_s=12.0)
    for rank, start_s in enumerate(starts_s):
        build.collective(rank, 1, start_s, 10.0)
    return build


def claimed(trace: Trace) -> tuple[int, int]:
    claims = analyse(trace).waits.claims
    return len(claims.waiter), claims.withheld


@pytest.mark.parametrize(
    ("errors", "transfer_s"),
    [((0, 0), [5, 5]), ((None, None), [0, 0]), ((0, None), [0, 0]), ((None, 0), [0, 5])],
)
def test_a_transfer_is_told_where_its_ranks_clock_and_that_of_the_last_are_known(
    errors: tuple[int | None, int | None], transfer_s: list[int]
) -> None:
    trace = waiting(2.0, 5.0).build()
    pairs = zip(trace.processes, errors, strict=True)
    trace = replace(trace, processes=tuple(replace(p, clock=Clock(0, e)) for p, e in pairs))
    transfers = analyse(trace).waits.transfers
    assert [each.total_ns for each in transfers] == [s * SECOND for s in transfer_s]


@pytest.mark.parametrize(("wait_s", "expected"), [(1.5, (0, 1)), (2.0, (0, 1)), (2.1, (1, 0))])
def test_a_wait_has_to_be_longer_than_both_clocks_errors_together(
    wait_s: float, expected: tuple[int, int]
) -> None:
    trace = with_processes(waiting(2.0, 2.0 + wait_s).build(), clock=Clock(0, SECOND))
    assert claimed(trace) == expected


def test_the_clock_of_a_process_without_steps_is_nobodys_doubt() -> None:
    trace = waiting(2.0, 5.0).build()
    helper = replace(trace.processes[0], index=2, role="reward", clock=Clock(0, None))
    assert claimed(replace(trace, processes=(*trace.processes, helper))) == (1, 0)


def restarted(later_first: bool) -> Analysis:
    """Ranks 0 and 1, each in two processes: a meeting in two groups before and after."""
    build = TraceBuilder(ranks=4)
    for process in range(4):
        again = process >= 2
        if later_first and process % 2:
            again = not again
        at = 100.0 * again
        build.step(process, int(again), at, {"train": 20.0})
        for group, second in (("a", 2.0), ("b", 12.0)):
            start_s = at + second + (process % 2)
            build.collective(process, 1, start_s, at + second + 2, group=group)
    trace = build.build()
    spans = trace.spans

    def of_a_rank(process: Process) -> Process:
        begun_ns = int(spans.start_ns[spans.of_process(process.index)].min()) + 1
        return replace(process, rank=process.index % 2, start_ns=begun_ns)

    return analyse(replace(trace, processes=tuple(map(of_a_rank, trace.processes))))


@pytest.mark.parametrize("later_first", [False, True])
def test_calls_of_a_restarted_job_meet_within_their_group_and_their_start(
    later_first: bool,
) -> None:
    arrivals = restarted(later_first).waits.arrivals
    assert arrivals.ranks.tolist() == [2] * 4
    assert ((arrivals.last_ns - arrivals.first_ns) == SECOND).all()
