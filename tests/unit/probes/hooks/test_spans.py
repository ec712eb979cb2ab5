"""Spans around functions that call each other or run side by side, and steps by their begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_doctor_probes import phase
from grpo_doctor_probes.hooks.spans import _OPEN, HookedSpan, SharedSpan, StepMarks
from tests.unit.probes.conftest import Recorded, in_threads


@pytest.fixture(autouse=True)
def _nothing_is_open() -> Iterator[None]:
    yield
    _OPEN.names.clear()


def test_it_is_within_whatever_is_open_and_not_only_within_the_next(recording: Recorded) -> None:
    with HookedSpan("eval"), HookedSpan("rollout"), HookedSpan("reward"):
        pass
    with HookedSpan("reward"), HookedSpan("train"), HookedSpan("rollout", ("reward",)):
        pass
    assert recording.names == ["eval", "train", "reward"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_coroutines_end_in_any_order(order: tuple[int, ...]) -> None:
    opened = [HookedSpan(name) for name in ("a", "b", "c")]
    for span in opened:
        span.__enter__()
    remaining = ["a", "b", "c"]
    for number in order:
        opened[number].__exit__(None, None, None)
        remaining.remove("abc"[number])
        assert _OPEN.names == remaining


def test_spans_of_another_thread_are_not_open_here(recording: Recorded) -> None:
    stacks: list[list[str]] = []
    with HookedSpan("eval"):
        in_threads(lambda: stacks.append(list(_OPEN.names)))
    assert stacks == [[]]


def test_a_step_of_which_nothing_came_is_forgotten(recording: Recorded) -> None:
    marks = StepMarks()
    marks.drop()  # there is none
    marks.begin(1)
    marks.drop()
    marks.end()
    assert recording.rows == []
    marks.begin(2)
    marks.end()
    with phase("afterwards"):
        pass
    rows = [(row.name, row.value, row.depth) for row in recording.rows]
    assert rows == [("step", 2.0, 0), ("afterwards", 0.0, 0)]


def test_an_end_without_a_beginning_does_no_harm(recording: Recorded) -> None:
    SharedSpan("c").__exit__(None, None, None)
    with SharedSpan("c"):
        assert _OPEN.names == ["c"]
    assert recording.names == ["c"]
