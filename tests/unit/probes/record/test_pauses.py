from __future__ import annotations

import gc

import pytest

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.recorder import LONGEST, SECONDS, Pauses
from tests.unit.probes.conftest import Recorded


class Node:
    """One of many objects that a collection has to look at."""

    def __init__(self, next_node: Node | None) -> None:
        self.next = next_node


def many_objects() -> list[Node]:
    return [Node(None) for _ in range(200_000)]


def test_the_pauses_of_a_step_are_its_counters(recording: Recorded) -> None:
    objects = many_objects()
    with step(1), phase("train"):
        gc.collect()
        gc.collect()
    assert len(objects) == 200_000
    *_, total, longest, end = recording.rows
    assert (total.name, longest.name, end.name) == (SECONDS, LONGEST, "step")
    # Two collections of 200,000 objects: some 4 ms each, and never the whole step.
    assert 1e-3 < longest.value < total.value < (end.end_ns - end.start_ns) / 1e9
    assert end.start_ns < total.start_ns < end.end_ns


def test_collections_between_steps_are_nobodys(recording: Recorded) -> None:
    objects = many_objects()
    gc.collect()
    with step(1):
        pass
    gc.collect()
    with step(2):
        pass
    assert len(objects) == 200_000
    assert [row.name for row in recording.rows] == ["step", "step"]


def test_short_pauses_wait_until_they_are_worth_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**9, 50_000))
    monkeypatch.setattr("grpo_doctor_probes.record.recorder.monotonic_ns", lambda: next(clock) + 1)
    pauses = Pauses()
    try:
        answers = []
        for _ in range(4):
            pauses._heard("start", {})
            pauses._heard("stop", {})
            answers.append(pauses.take())
    finally:
        pauses.close()
    assert [answer is None for answer in answers] == [True, False, True, False]
    assert answers[1] == pytest.approx((100e-6, 50e-6))


def test_a_collection_that_had_begun_before_is_not_counted() -> None:
    pauses = Pauses()
    try:
        pauses._heard("stop", {})
        assert pauses.take() is None
    finally:
        pauses.close()


def test_nothing_is_left_with_the_collector_after_a_recording(recording: Recorded) -> None:
    before = len(gc.callbacks)
    recorder.stop()
    assert len(gc.callbacks) == before - 1
    gc.collect()
