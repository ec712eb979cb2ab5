"""A recording that leaves a question open says which one, and still gives the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.document.summary import not_judged
from grpo_doctor.trace.model import Clock, Kind, Loss, Origin, Trace
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run


def open_questions(build: TraceBuilder | Trace) -> str:
    trace = build.build() if isinstance(build, TraceBuilder) else build
    document = build_document(trace)
    questions = not_judged(analyse(trace))
    assert document.summary.not_judged == questions
    return " | ".join(questions)


def two(steps: tuple[int, int], **facts: object) -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for rank, count in enumerate(steps):
        for number in range(count):
            build.step(rank, number, 10.0 * number, {"rollout": 4.0, "train": 5.0})
            build.collective(rank, number, 10.0 * number + 5 + rank, 10.0 * number + 7)
    return build


def marked(ranks: int = 1, begins_s: Sequence[float] = (0, 10, 20, 30, 40)) -> TraceBuilder:
    """Steps of a training, without collectives."""
    build = TraceBuilder(ranks=ranks)
    for rank in range(ranks):
        for number, begin_s in enumerate(begins_s):
            build.step(rank, number, begin_s, {"train": 9.0})
    return build


def without_phases() -> TraceBuilder:
    build = TraceBuilder()
    for number in range(5):
        build.row(Kind.STEP, 0, "step", 10.0 * number, 10.0 * number + 9, depth=0, value=number)
    return build


def lacking(*ranks: int) -> Trace:
    return dataclasses.replace(two((5, 5)).build(), loss=Loss(missing_ranks=ranks))


@pytest.mark.parametrize(("build", "question"), [
    (two((6, 6)), ""),
    (two((4, 4)), ""),
    (two((3, 3)), "How step times vary: only 3 steps could be used."),
    (two((1, 1)), "How step times vary: only 1 step could be used."),
    (TraceBuilder().span(0, "train", 0, 1), "Step times: no step was"),
    (without_phases(), "Where the step time goes: no phase was recorded."),
    (marked(), "Wait time: not measured, since there is only one rank."),
    (marked(2), "Who waits for whom: no collective could be matched between ranks."),
    (two((9, 5)), "Steps 5 to 8: rank 1 ended after step 4; they are excluded from all means."),
    (two((7, 5)), "Steps 5 to 6: rank 1 ended after step 4"),
    (two((6, 5)), ""),  # how any job ends
    (two((5, 0)).span(1, "init", 0, 1),
        "Rank 1: recorded no step and is excluded from all means."),
    (lacking(2, 3), "Ranks 2, 3: left no recording; others may have waited for it."),
    (lacking(*range(2, 10)), "Ranks 2, 3, 4, 5, 6, 7, 8, 9: left no recording"),
    (lacking(*range(2, 11)), "Ranks 2, 3, 4, 5, 6, 7, 8, 9 and 1 more: left no recording"),
    (marked(begins_s=(0, 10, 15, 25, 35)), "Rank 0: steps overlap or go back in time"),
    (run(), "How busy the GPUs really were"),
])  # fmt: skip
def test_what_a_recording_leaves_open(build: TraceBuilder | Trace, question: str) -> None:
    questions = open_questions(build)
    assert question in questions if question else questions == ""


def test_steps_that_not_every_rank_has_are_counted() -> None:
    summary = build_document(two((9, 5)).build()).summary
    assert (summary.steps, summary.steps_total) == (5, 9)


def test_of_a_log_of_durations_what_no_timer_covers_is_not_idle() -> None:
    trace = marked().build()
    log = dataclasses.replace(trace.run, origin=Origin("a console log", durations_only=True))
    document = build_document(dataclasses.replace(trace, run=log))
    assert document.run.ranks == []
    rest = document.summary.unattributed
    assert rest is None or rest.idle_seconds == 0
    assert (document.views.critical_path, document.views.critical_path_worst) == (None, None)


@pytest.mark.parametrize("limit", ["", "Where the step time goes: not in such a log."])
@pytest.mark.parametrize("metric", ["reward", "loss"])
def test_a_log_says_once_where_time_goes_and_whether_it_has_rewards(
    limit: str, metric: str
) -> None:
    build = TraceBuilder()
    for number in range(4):
        build.step(0, number, 10.0 * number, {}, end_s=10.0 * number + 9)
        build.metrics(number, **{metric: 0.5})
    trace = build.build()
    log = dataclasses.replace(trace.run, origin=Origin("a log", (limit,) if limit else ()))
    questions = not_judged(analyse(dataclasses.replace(trace, run=log)))
    assert sum(text.startswith("Where the step time goes") for text in questions) == 1
    none = "Rewards: none under a known name, so this may be no GRPO run."
    assert (none in questions) == (metric == "loss")


def test_waits_below_the_clocks_error() -> None:
    trace = two((6, 6)).build()
    unsure = tuple(
        dataclasses.replace(p, clock=Clock(0, 2_000_000_000, "same clock")) for p in trace.processes
    )
    document = build_document(dataclasses.replace(trace, processes=unsure))
    assert document.summary.not_judged[0].startswith("6 waits in collectives: the ranks' clocks")
    assert document.run.clock is not None
    assert document.run.clock.max_error_ms == 2000
    assert document.run.clock.text == (
        "aligned by same clock to 2e+03 ms: shorter waits are not reported"
    )


def test_a_clock_that_nobody_could_align() -> None:
    trace = two((6, 6)).build()
    first, second = trace.processes
    lost = dataclasses.replace(second, clock=Clock())
    document = build_document(dataclasses.replace(trace, processes=(first, lost)))
    clock = document.run.clock
    assert clock is not None
    assert clock.max_error_ms is None
    assert clock.methods == ["same clock", "unknown"]
    assert clock.text.startswith("the clock of rank 1 could not be aligned")


@pytest.mark.parametrize("limit", [None, 700.0])
def test_power_tells_spinning_from_computing(limit: float | None) -> None:
    build = run()
    times = [0.0, 20.0, 40.0, 60.0]
    build.series("gpu.util", "%", times, [100, 100, 100, 100], scope="gpu", gpu="GPU-0")
    build.series("gpu.power", "W", times, [100, 500, 300, 500], scope="gpu", gpu="GPU-0")
    if limit:
        build.series("gpu.power_limit", "W", times, [limit] * 4, scope="gpu", gpu="GPU-0")
    summary = build_document(build.build()).summary
    assert summary.gpu_busy_pct == 100
    assert summary.gpu_busy_by == "power"
    busy = summary.gpu_truly_busy_pct
    assert busy is not None
    assert 40 < busy * (600 / 400 if limit else 1) < 60


def test_one_wait_below_the_clocks_error_is_one() -> None:
    trace = marked(2).collective(0, 0, 5.0, 7.0).collective(1, 0, 6.0, 7.0).build()
    unsure = tuple(
        dataclasses.replace(p, clock=Clock(0, 2_000_000_000, "same clock")) for p in trace.processes
    )
    text = open_questions(dataclasses.replace(trace, processes=unsure))
    assert "1 wait in collectives: the ranks' clocks" in text


@pytest.mark.parametrize(("ranks", "is_said"), [(1, False), (2, True)])
def test_of_what_was_imported_ranks_are_judged_where_there_are_several(
    ranks: int, is_said: bool
) -> None:
    trace = marked(ranks).build()
    origin = Origin("a console log", ("What is in no log.",), durations_only=False)
    text = open_questions(
        dataclasses.replace(trace, run=dataclasses.replace(trace.run, origin=origin))
    )
    assert text.startswith("What is in no log.")
    assert ("Who waits for whom" in text) is is_said
