"""The facts of a run: which ranks, GPUs and hosts, and how sure its clocks are."""

from __future__ import annotations

import dataclasses

from grpo_doctor.document.facts import clock_entry, rank_entries, run_entry
from grpo_doctor.trace.model import SAME_CLOCK, Clock, Kind, Loss, Trace
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run


def two() -> TraceBuilder:
    return TraceBuilder(ranks=2, hosts=["a", "b"]).span(0, "train", 0, 1).span(1, "train", 0, 2)


def with_process(trace: Trace, index: int, **changes: object) -> Trace:
    processes = list(trace.processes)
    processes[index] = dataclasses.replace(processes[index], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(trace, processes=tuple(processes))


def test_gpus_that_the_job_does_not_see_are_left_out() -> None:
    trace = run(ranks=2).build()
    hidden = dataclasses.replace(trace.gpus[1], visible=False)
    entry = run_entry(dataclasses.replace(trace, gpus=(trace.gpus[0], hidden)))
    assert [gpu.uuid for gpu in entry.gpus] == ["GPU-0"]


def test_each_host_once_in_the_order_of_ranks() -> None:
    assert run_entry(two().build()).hosts == ["a", "b"]


def test_of_a_restarted_rank_the_last_process_tells_its_state() -> None:
    trace = with_process(two().build(), 1, rank=0, start_ns=5, state="finished")
    trace = with_process(trace, 0, start_ns=9, state="killed")
    (entry,) = rank_entries(trace)
    assert (entry.rank, entry.state) == (0, "killed")
    trace = with_process(trace, 0, start_ns=1)
    assert rank_entries(trace)[0].state == "finished"


def test_a_rank_that_recorded_after_all_is_not_missing() -> None:
    trace = dataclasses.replace(two().build(), loss=Loss(missing_ranks=(1, 2)))
    entries = [(entry.rank, entry.state) for entry in rank_entries(trace)]
    assert [rank for rank, _ in entries] == [0, 1, 2]
    assert [state == "missing" for _, state in entries] == [False, False, True]


def test_open_spans_come_outermost_first_and_closed_ones_not_at_all() -> None:
    build = two()
    build.span(0, "rollout/generate", 1.0, 1.5)
    build.row(Kind.SPAN, 0, "train", 2.0, 5.0, depth=1, open=True)
    build.row(Kind.SPAN, 0, "mine", 2.0, 5.0, depth=2, open=True)
    spans = rank_entries(build.build())[0].open
    assert [(span.name, span.open_s) for span in spans] == [("train", 3.0), ("mine", 3.0)]


def test_clocks_that_agree_exactly_say_so() -> None:
    trace = with_process(
        with_process(two().build(), 0, clock=SAME_CLOCK),
        1,
        clock=SAME_CLOCK,
    )
    entry = clock_entry(trace)
    assert (entry.max_error_ms, entry.text) == (0.0, "all ranks read the same clock")
    entry = clock_entry(with_process(trace, 1, clock=Clock(0, 2_500_000)))
    assert entry.max_error_ms == 2.5
    assert "to 2.5 ms" in entry.text


def test_clocks_that_nobody_could_align_are_named_up_to_eight() -> None:
    build = TraceBuilder(ranks=9)
    for rank in range(9):
        build.span(rank, "train", 0, 1)
    trace = build.build()
    lost = tuple(dataclasses.replace(p, clock=Clock(0, None)) for p in trace.processes)
    text = clock_entry(dataclasses.replace(trace, processes=lost)).text
    assert text.startswith("the clock of ranks 0, 1, 2, 3, 4, 5, 6, 7 and others could not")
    text = clock_entry(dataclasses.replace(trace, processes=lost[:8])).text
    assert text.startswith("the clock of ranks 0, 1, 2, 3, 4, 5, 6, 7 could not")
    assert clock_entry(TraceBuilder(ranks=0).build()).text == "no rank recorded anything"


def test_a_source_is_called_by_its_last_part() -> None:
    for source, shown in (("/runs/a/trace.json", "trace.json"), ("/", "/"), ("", "")):
        trace = dataclasses.replace(two().build(), source=source)
        assert run_entry(trace).source == shown
