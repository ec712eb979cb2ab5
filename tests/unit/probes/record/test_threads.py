"""The open-span stack under any order of begins and ends."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.layout import KIND_SHIFT, SPAN
from grpo_doctor_probes.record.threads import Level
from tests.recording import spans_file
from tests.unit.probes.conftest import Recorded


@settings(max_examples=60, deadline=None)
@given(choices=st.lists(st.integers(min_value=-1, max_value=60), max_size=80))
def test_what_is_open_is_shown_and_an_empty_stack_starts_at_the_bottom(choices: list[int]) -> None:
    """-1 begins a span; n ends the n-th of those that are open."""
    with tempfile.TemporaryDirectory() as folder:
        recorder.start(folder)
        try:
            _follow(folder, choices)
        finally:
            recorder.stop()


def _follow(folder: str, choices: list[int]) -> None:
    active = recorder.ACTIVE
    assert active is not None
    thread = active.thread()
    opened: list[tuple[int, Level]] = []
    for start_ns, choice in enumerate(choices, 1):
        if choice < 0:
            opened.append((start_ns, thread.begin(start_ns, SPAN << KIND_SHIFT)))
        elif opened:
            _, level = opened.pop(choice % len(opened))
            thread.leave(level)
        shown = live.read_header(spans_file(Path(folder))).open_spans
        assert sorted(o.start_ns for o in shown) == sorted(
            start for start, level in opened if level.depth < 32
        )
    while opened:
        thread.leave(opened.pop(0)[1])
    assert thread.level.depth == 0
    assert thread.in_order is active


def test_a_slot_taken_over_shows_nothing_of_the_thread_before(recording: Recorded) -> None:
    active = recorder.ACTIVE
    assert active is not None
    first = active.thread()
    first.begin(1, SPAN << KIND_SHIFT)
    assert len(recording.header.open_spans) == 1
    type(first)(active, first.slot)
    assert not recording.header.open_spans
