"""Events block by block: where blocks are cut, what is damaged, what stands around the events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.kineto import stream
from grpo_doctor.importers.kineto.stream import Device, Distributed, Event, EventStream, arguments
from tests.unit.importers.kineto_files import BASE_NS, annotation, text_of, write


def numbered(count: int) -> list[dict[str, Any]]:
    nested = {"args": {"inner": [{"a": 1}, {"b": 2}]}}
    return [annotation(f"event {number}", 10.0 * number, 5.0, **nested) for number in range(count)]


def read(path: Path) -> tuple[list[str], EventStream]:
    reader = EventStream(path)
    return [event.name for block in reader.blocks() for event in block], reader


def names(count: int) -> list[str]:
    return [f"event {number}" for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("size", [40, 333, 1 << 20])
def test_every_event_comes_once_and_in_order_however_blocks_are_cut(
    count: int, indent: int | None, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BLOCK_BYTES", size)
    path = write(tmp_path / "x.json", text_of(numbered(count), rank=3, world_size=8, indent=indent))
    events, reader = read(path)
    assert events == names(count)
    assert (reader.truncated, reader.damaged) == (False, 0)
    assert reader.head.baseTimeNanoseconds == BASE_NS
    assert reader.head.distributedInfo == Distributed(rank=3, world_size=8, backend="nccl")
    assert reader.head.deviceProperties == [Device(0, "NVIDIA H100", 85_899_345_920)]


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_a_bare_array_is_all_events(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BLOCK_BYTES", size)
    events, reader = read(write(tmp_path / "x.json", " \n" + json.dumps(numbered(4))))
    assert (events, reader.truncated) == (names(4), False)


FIRST = {"baseTimeNanoseconds": 5, "distributedInfo": {"rank": 1}, "deviceProperties": [{"id": 1}]}
LATER = {"baseTimeNanoseconds": 6, "distributedInfo": {"rank": 2}, "deviceProperties": [{"id": 2}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (FIRST, {}, (5, 1, 1)), ({}, LATER, (6, 2, 2)), (FIRST, LATER, (5, 1, 1)),
        ({"x": 1}, {}, (0, None, None)),
    ],
)  # fmt: skip
def test_facts_stand_before_or_after_the_events_and_the_first_to_say_one_is_believed(
    before: dict[str, Any],
    after: dict[str, Any],
    expected: tuple[int, int | None, int | None],
    tmp_path: Path,
) -> None:
    def inner(facts: dict[str, Any]) -> str:
        return json.dumps(facts)[1:-1]

    text = f'{{{inner(before)}{"," if before else ""} "traceEvents": {json.dumps(numbered(2))}'
    text += f"{',' if after else ''} {inner(after)}}}"
    events, reader = read(write(tmp_path / "x.json", text))
    assert events == names(2)
    head = reader.head
    rank = head.distributedInfo.rank if head.distributedInfo else None
    device = head.deviceProperties[0].id if head.deviceProperties else None
    assert (head.baseTimeNanoseconds, rank, device) == expected


def test_a_head_with_bare_nan_is_read_and_one_of_other_types_is_passed_over(tmp_path: Path) -> None:
    text = '{"x": NaN, "baseTimeNanoseconds": 7, "traceEvents": []}'
    assert read(write(tmp_path / "a.json", text))[1].head.baseTimeNanoseconds == 7
    text = '{"baseTimeNanoseconds": "soon", "traceEvents": []}'
    assert read(write(tmp_path / "b.json", text))[1].head.baseTimeNanoseconds == 0


def damage(text: str, *events: int) -> str:
    for number in events:
        text = text.replace(f'"event {number}"', f'"event" {number}"')
    return text


@pytest.mark.parametrize("damaged", [(), (0,), (3,), (6,), (1, 2), (0, 6)])
def test_a_damaged_event_costs_itself_alone(damaged: tuple[int, ...], tmp_path: Path) -> None:
    text = damage(text_of(numbered(7)), *damaged)
    events, reader = read(write(tmp_path / "x.json", text))
    assert events == [name for number, name in enumerate(names(7)) if number not in damaged]
    assert (reader.damaged, reader.truncated) == (len(damaged), False)


def test_numbers_that_json_does_not_have_damage_nothing(tmp_path: Path) -> None:
    text = text_of(numbered(3)).replace('"dur": 5.0', '"dur": NaN', 1)
    events, reader = read(write(tmp_path / "x.json", text))
    # That event has no length, and so is no event.
    assert (events, reader.damaged) == (names(3)[1:], 1)


@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_of_a_file_that_is_cut_off_whole_events_are_there(
    indent: int | None, count: int, tmp_path: Path
) -> None:
    text = text_of(numbered(count), indent=indent)
    last = f'"event {count - 1}"'
    events, reader = read(write(tmp_path / "x.json", text[: text.index(last) + len(last)]))
    assert (events, reader.truncated) == (names(count - 1), True)


def test_compressed_data_that_ends_early_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(text_of(numbered(2000)).encode())[:-100])
    events, reader = read(path)
    assert reader.truncated
    assert events == names(len(events))
    assert len(events) > 100


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no `traceEvents` within the first 0 bytes"),
        (b'{"a": 1}', "no `traceEvents` within the first 8 bytes"),
        (b"\x1f\x8b\x08\x00damaged", "can't read"),
    ],
)
def test_what_is_no_trace_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=words):
        read(path)
    with pytest.raises(TraceError, match="can't read"):
        read(tmp_path / "gone.json")


@pytest.mark.parametrize(("limit", "refused"), [(1000, True), (100_000, False)])
def test_an_event_and_what_stands_before_have_a_limit(
    limit: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(stream, "_MOST_EVENT_BYTES", limit)
    long = annotation("event 0", 1.0, 2.0, args={"stack": "x" * 2000})
    event = write(tmp_path / "event.json", json.dumps({"traceEvents": [long]}))
    head = write(tmp_path / "head.json", json.dumps({"x": "y" * 2000, "traceEvents": []}))
    if refused:
        with pytest.raises(TraceError, match="an event has over 0 MiB"):
            read(event)
        with pytest.raises(TraceError, match="no `traceEvents`"):
            read(head)
    else:
        assert (read(event)[0], read(head)[0]) == (["event 0"], [])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b'{"a": 1}', {"a": 1}), (b"", {}), (b"[1]", {}), (b'{"a": ', {}), (b"null", {})],
)
def test_arguments_are_an_object_or_none(raw: bytes, expected: dict[str, Any]) -> None:
    assert arguments(Event(args=msgspec.Raw(raw))) == expected


def blocks_of(path: Path) -> list[Sequence[Event]]:
    return list(EventStream(path).blocks())


def test_memory_is_for_a_block_and_not_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_BLOCK_BYTES", 2000)
    for indent in (2, None):
        path = write(tmp_path / "x.json", text_of(numbered(100), indent=indent))
        assert max(len(block) for block in blocks_of(path)) < 30
