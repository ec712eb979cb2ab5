"""Spans around functions that call each other, and steps of which only the beginnings are seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from grpo_doctor_probes import phase
from grpo_doctor_probes.hooks import spans
from grpo_doctor_probes.hooks.spans import HookedSpan, StepMarks, inside, open_spans, write_ended
from grpo_doctor_probes.hooks.sums import PhaseSums
from grpo_doctor_probes.record import recorder
from tests.unit.probes.conftest import Recorded


@pytest.fixture(autouse=True)
def _nothing_is_open() -> Iterator[None]:
    yield
    open_spans().clear()


def names(recording: Recorded) -> list[str]:
    """Of the spans, in the order of their ends."""
    return [row.name for row in recording.rows if row.kind == "span"]


@pytest.mark.parametrize(
    ("outer", "inner", "unless", "recorded"),
    [
        ("train", "optimizer", (), True),
        ("train", "train", (), False),  # a subclass calls its base
        ("train", "train/loss", (), True),
        ("eval", "rollout", (), False),
        ("checkpoint", "offload", (), False),
        ("evaluation", "rollout", (), True),
        ("reward", "rollout/generate", ("reward",), False),
        ("rollout", "rollout/generate", ("reward",), True),
    ],
)
def test_what_is_part_of_an_open_span_is_none_of_its_own(
    recording: Recorded, outer: str, inner: str, unless: tuple[str, ...], recorded: bool
) -> None:
    with HookedSpan(outer), HookedSpan(inner, unless):
        assert open_spans() == ([outer, inner] if recorded else [outer])
        assert inside(outer)
        assert inside(inner) is (recorded or inner == outer)
    assert open_spans() == []
    assert names(recording) == ([inner, outer] if recorded else [outer])


def test_it_is_within_whatever_is_open_and_not_only_within_the_next(recording: Recorded) -> None:
    with HookedSpan("eval"), HookedSpan("rollout"), HookedSpan("reward"):
        pass
    with HookedSpan("reward"), HookedSpan("train"), HookedSpan("rollout", ("reward",)):
        pass
    assert names(recording) == ["eval", "train", "reward"]


def test_the_direction_of_an_offload_is_said_and_after_its_end_a_name_is_free(
    recording: Recorded,
) -> None:
    with HookedSpan("offload", direction="to_cpu"):
        pass
    with HookedSpan("offload"):
        pass
    assert [row.args for row in recording.rows] == ['{"direction": "to_cpu"}', ""]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_coroutines_end_in_any_order(order: tuple[int, ...]) -> None:
    opened = [HookedSpan(name) for name in ("a", "b", "c")]
    for span in opened:
        span.__enter__()
    remaining = ["a", "b", "c"]
    for number in order:
        opened[number].__exit__(None, None, None)
        remaining.remove("abc"[number])
        assert open_spans() == remaining


def test_spans_of_another_thread_are_not_open_here(recording: Recorded) -> None:
    stacks: list[list[str]] = []
    with HookedSpan("eval"):
        thread = threading.Thread(target=lambda: stacks.append(list(open_spans())))
        thread.start()
        thread.join()
    assert stacks == [[]]


def test_the_innermost_span_is_charged_for_the_time_before_it_changes(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(number * 10**9 for number in (0, 1, 3, 7, 12, 20))
    monkeypatch.setattr("grpo_doctor_probes.hooks.sums.monotonic_ns", lambda: next(readings))
    sums = PhaseSums(enabled=True)
    monkeypatch.setattr(spans, "SUMS", sums)
    sums.begin_step()
    with HookedSpan("train"), HookedSpan("optimizer"):
        pass
    assert sums.take([]) == {
        "grpo_doctor/train_s": 2.0 + 5.0,
        "grpo_doctor/optimizer_s": 4.0,
        "grpo_doctor/step_s": 20.0,
    }


def test_what_has_ended_is_written_with_the_length_that_is_told(recording: Recorded) -> None:
    assert recorder.ACTIVE is not None
    before_ns = time.monotonic_ns()
    write_ended(recorder.ACTIVE, 2e-5, "rollout/queue", "rollout/queue/full")
    first, second = recording.rows
    assert [first.name, second.name] == ["rollout/queue", "rollout/queue/full"]
    assert (first.start_ns, first.end_ns) == (second.start_ns, second.end_ns)
    assert first.end_ns - first.start_ns == 20_000
    assert before_ns <= first.end_ns <= time.monotonic_ns()


def steps(recording: Recorded) -> list[int]:
    return [int(row.value) for row in recording.rows if row.kind == "step"]


def test_a_step_ends_where_the_next_begins(recording: Recorded) -> None:
    marks = StepMarks()
    marks.end()  # there is none
    for number in (4, 5):
        marks.begin(number)
        assert recording.header.step == number
        with phase("train"):
            pass
    assert steps(recording) == [4]
    marks.end()
    marks.end()
    assert steps(recording) == [4, 5]
    first, second = (row for row in recording.rows if row.kind == "step")
    assert first.end_ns <= second.start_ns


def test_a_step_of_which_nothing_came_is_forgotten(recording: Recorded) -> None:
    marks = StepMarks()
    marks.drop()  # there is none
    marks.begin(1)
    marks.drop()
    marks.end()
    assert steps(recording) == []
    marks.begin(2)
    marks.end()
    with phase("afterwards"):
        pass
    assert steps(recording) == [2]
    assert [row.depth for row in recording.rows] == [0, 0]


@pytest.mark.parametrize("summed", [True, False])
def test_a_step_is_counted_in_the_sums_where_they_are_wanted(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch, summed: bool
) -> None:
    sums = PhaseSums(enabled=summed)
    monkeypatch.setattr(spans, "SUMS", sums)
    marks = StepMarks()
    marks.begin(1)
    marks.end()
    sums.on = True
    assert bool(sums.take([])) is summed
