"""Headers read while a process runs, and headers that are none."""

from __future__ import annotations

import pytest

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import layout, recorder
from tests.unit.probes.conftest import Recorded, active


def test_when_the_latest_span_began_is_told_after_its_end_too(recording: Recorded) -> None:
    with step(0):
        with phase("rollout"):
            pass
        before = recording.header
        assert before.open_spans[-1].start_ns < before.begun_ns[0]
        with phase("rollout"):
            during = recording.header
        assert during.begun_ns[0] == during.open_spans[-1].start_ns > before.begun_ns[0]
        assert recording.header.begun_ns == during.begun_ns
    assert set(during.begun_ns[1:]) == {0}


def test_an_open_collective_has_its_group_and_sequence(recording: Recorded) -> None:
    name_id = active().name_id(("all_reduce", (("group", "world"),)))
    sequence = (1 << 24) + 7
    mark = name_id | layout.COLLECTIVE << layout.KIND_SHIFT
    mark |= (sequence & layout.SEQUENCE_MASK) << layout.THREAD_SHIFT
    active().thread().begin(5, mark)
    (span,) = recording.header.open_spans
    assert span == live.OpenSpan(
        "all_reduce", 5, 0, args='{"group": "world"}', kind=layout.COLLECTIVE, sequence=7
    )


def header_of(recording: Recorded) -> bytearray:
    recorder.stop()
    return bytearray(recording.path.read_bytes()[: layout.HEADER_BYTES])


@pytest.mark.parametrize(
    ("at", "value", "size", "match"),
    [
        (0, 0, layout.HEADER_BYTES, "not a span file"),
        (8, layout.VERSION + 1, layout.HEADER_BYTES, f"reads {layout.VERSION}"),
        (16, 1, layout.HEADER_BYTES, "damaged"),
        (0, 0, 7, "ends after 7 bytes"),
        (0, 0, layout.HEADER_BYTES - 1, "ends after"),
    ],
)
def test_a_header_that_is_none_is_refused(
    recording: Recorded, at: int, value: int, size: int, match: str
) -> None:
    data = header_of(recording)
    data[at] = value
    with pytest.raises(ValueError, match=match):
        live.parse_header(bytes(data[:size]))


def test_counts_and_names_that_make_no_sense_do_not_harm(recording: Recorded) -> None:
    data = header_of(recording)
    data[layout.STATE_OFFSET : layout.THREADS_OFFSET] = b"\xff" * (
        layout.THREADS_OFFSET - layout.STATE_OFFSET
    )
    data[layout.NAMES_OFFSET :] = b"\xff" * layout.NAMES_BYTES
    header = live.parse_header(bytes(data))
    assert len(header.names) <= layout.NAMES_BYTES // 2
