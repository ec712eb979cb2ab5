"""Trace files that are cut off, damaged, foreign, hostile or newer: an error that helps, or what
is intact and a note of what is not."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace import read
from grpo_doctor.trace.model import FORMAT, Kind, Trace
from grpo_doctor.trace.read import read_trace
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder

STEPS = 20


def build() -> Trace:
    builder = TraceBuilder(ranks=2).gpu("GPU-1").metrics(0, loss=0.5)
    for rank in (0, 1):
        for number in range(STEPS):
            builder.step(rank, number, number, {"rollout": 0.6, "train": 0.4})
            builder.collective(rank, number + 1, number + 0.7, number + 0.8)
    builder.series("host.cpu", "%", range(STEPS), range(STEPS))
    return builder.build()


ROWS = 2 * STEPS * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file without columns of its spans: all of them are read from the events."""
    path = tmp_path / "trace.json"
    write_trace(build(), path)
    head, events = path.read_text().split('"grpoDoctorSpans":')
    path.write_text(head + events[events.index('"traceEvents"') :])
    return path


def read_text(path: Path, text: str | bytes) -> Trace:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path)


def refused(path: Path, text: str | bytes, reason: str) -> str:
    """The message of a file that can't be used: it names the file, the reason and a next step."""
    with pytest.raises(TraceError, match=reason) as error:
        read_text(path, text)
    message = str(error.value)
    assert str(path) in message
    assert re.search(r"`grpo-doctor run|point `report`|pip install|Give |Check ", message)
    return message


def test_a_file_cut_off_anywhere_is_used_up_to_the_cut_or_refused(path: Path) -> None:
    text = path.read_bytes()
    head = text.index(b'"traceEvents":[')
    sizes = {*range(0, len(text) - 1, 97), head - 1, head, head + 15, head + 16, len(text) - 3}
    before = 0
    for size in sorted(sizes):
        if size < head + 15:
            refused(path, text[:size], "is empty|is damaged|is not a grpo-doctor trace")
            continue
        trace = read_text(path, text[:size])
        assert trace.loss.truncated, size
        assert any("cut off" in note for note in trace.loss.notes)
        assert before <= len(trace.spans) <= ROWS
        before = len(trace.spans)
    assert before >= ROWS - 1


def test_a_cut_at_the_end_of_a_line_loses_only_what_follows(path: Path) -> None:
    text = path.read_text()
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if '"ph":"X"' in line)
    for count in (1, 10, 50):
        for ending in (",", "", ",\n"):
            cut = "\n".join(lines[: first + count]).rstrip(",") + ending
            trace = read_text(path, cut)
            assert len(trace.spans) == count
            assert trace.loss.truncated
            assert not any("damaged" in note for note in trace.loss.notes)


def test_the_whole_file_is_not_called_truncated(path: Path) -> None:
    trace = read_trace(path)
    assert (len(trace.spans), trace.loss.any) == (ROWS, False)


@pytest.mark.parametrize("size", [2, 10, 100])
def test_a_compressed_file_cut_off_in_its_head(path: Path, size: int) -> None:
    refused(path, gzip.compress(path.read_bytes())[:size], "is damaged")


@pytest.mark.parametrize("share", [0.7, 0.9, 0.999])
def test_a_compressed_file_cut_off_in_its_events(path: Path, share: float) -> None:
    packed = gzip.compress(path.read_bytes())
    trace = read_text(path, packed[: int(len(packed) * share)])
    assert trace.loss.truncated
    assert 0 < len(trace.spans) <= ROWS


def test_a_compressed_file_of_any_name(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "renamed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_trace(packed).spans) == ROWS


def test_rubbish_after_the_compressed_data_is_no_loss_of_spans(path: Path) -> None:
    trace = read_text(path, gzip.compress(path.read_bytes()) + b"rubbish")
    assert len(trace.spans) == ROWS


def test_compressed_rubbish(path: Path) -> None:
    packed = bytearray(gzip.compress(path.read_bytes()))
    refused(path, b"\x1f\x8b" + os.urandom(50), "can't be unpacked")
    packed[100:200] = os.urandom(100)
    with pytest.raises(TraceError):
        read_text(path, bytes(packed))


FOREIGN = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n ", "is empty"),
    "kineto": (b'{"schemaVersion":1,"deviceProperties":[],"traceEvents":[]}', "PyTorch profiler"),
    "chrome": (b'{"traceEvents":[{"ph":"X","ts":1}]}', "another program"),
    "list": (b'[{"ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"name":"a"}]', "another program"),
    "text": (b"Traceback (most recent call last):\n", "not a trace"),
    "yaml": (b"learning_rate: 1e-6\n", "not a trace"),
    "html": (b"<!doctype html><script>alert(1)</script>", "not a trace"),
    "binary": (bytes(range(256)) * 100, "not a trace"),
    "zeros": (bytes(100_000), "not a trace"),
    "number": (b"7", "not a trace"),
    "null": (b'{"grpoDoctor":null,"traceEvents":[]}', "another program"),
    "findings": (b'{"schema":1,"run":{"id":"x"}}', "not a trace"),
    "utf-16": ('{"grpoDoctor":{}}'.encode("utf-16"), "not a trace"),
    "deep": (b'{"grpoDoctor":' + b"[" * 100_000, "is damaged"),
    "half": (b'{"grpoDoctor":{"format":1', "is damaged"),
}


@pytest.mark.parametrize(("text", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_what_is_no_trace_of_ours_is_refused_with_what_it_looks_like(
    tmp_path: Path, text: bytes, reason: str
) -> None:
    refused(tmp_path / "trace.json", text, reason)


def test_a_large_foreign_file_is_refused_without_being_decoded(tmp_path: Path) -> None:
    event = b'{"ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"name":"kernel"},\n'
    text = b'{"schemaVersion":1,"traceEvents":[\n' + event * 400_000 + b"{}]}"
    assert "PyTorch profiler" in refused(tmp_path / "trace.json", text, "not a grpo-doctor trace")


Change = Callable[[dict[str, Any]], object]


def changed(path: Path, change: Change, *, lines: bool = True) -> str:
    """The file with a change of its content, in our layout or on one line."""
    document = json.loads(path.read_text())
    change(document)
    if not lines:
        return json.dumps(document)
    events = ",\n".join(json.dumps(e) for e in document.pop("traceEvents"))
    head = ",\n".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in document.items())
    return f'{{\n{head},\n"traceEvents":[\n{events}\n]}}\n'


def test_a_newer_format_is_refused_even_if_its_types_changed(path: Path) -> None:
    def newer(document: dict[str, Any]) -> None:
        document["grpoDoctor"].update(format=FORMAT + 1, processes="elsewhere", run=[1])

    message = refused(path, changed(path, newer), f"format {FORMAT + 1}")
    assert "then pip install ." in message


def test_unknown_keys_of_a_newer_version_are_skipped(path: Path) -> None:
    def more(document: dict[str, Any]) -> None:
        document["grpoDoctor"]["new"] = {"a": [1, 2]}
        document["newer"] = None
        document["traceEvents"].append({"ph": "X", "cat": "grpo.newer", "pid": 1000, "ts": "?"})
        document["traceEvents"][-1]["ts"] = 1

    trace = read_text(path, changed(path, more))
    assert (len(trace.spans), trace.loss.notes) == (ROWS, ())


WRONG: dict[str, Change] = {
    "format is text": lambda d: d["grpoDoctor"].update(format="one"),
    "processes is a number": lambda d: d["grpoDoctor"].update(processes=7),
    "run is a list": lambda d: d["grpoDoctor"].update(run=[]),
    "rank is text": lambda d: d["grpoDoctor"]["processes"][0].update(rank="0"),
    "pid is missing": lambda d: d["grpoDoctor"]["processes"][0].pop("pid"),
    "time past 64 bits": lambda d: d["grpoDoctor"]["run"].update(duration_ns=10**30),
    "end past 64 bits": lambda d: d["grpoDoctor"]["processes"][0].update(end_ns=2**63),
    "steps are text": lambda d: d["grpoDoctor"]["metrics"].update(steps=["a"]),
    "series is a number": lambda d: d.update(grpoDoctorSeries=5),
    "times of a series": lambda d: d["grpoDoctorSeries"]["tracks"][0].update(t_us=[2**70]),
    "values of a series": lambda d: d["grpoDoctorSeries"]["tracks"][0].update(v=["high"]),
}


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_head_of_wrong_types_is_refused_by_where_it_is_wrong(
    path: Path, change: Change, lines: bool
) -> None:
    message = refused(path, changed(path, change, lines=lines), "is damaged")
    assert "`$." in message


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "with a byte order mark"])
def test_the_same_json_on_one_line_is_the_same_trace(path: Path, mark: bytes) -> None:
    expected = read_trace(path)
    trace = read_text(path, mark + changed(path, lambda _: None, lines=False).encode())
    assert np.array_equal(trace.spans.start_ns, expected.spans.start_ns)
    assert not trace.loss.any


def span_lines(path: Path) -> list[int]:
    return [i for i, s in enumerate(path.read_text().split("\n")) if '"ph":"X"' in s]


@pytest.mark.parametrize("lines", [True, False])
def test_bare_nan_costs_the_number_and_is_said(path: Path, lines: bool) -> None:
    def break_it(document: dict[str, Any]) -> None:
        document["grpoDoctor"]["knobs"] = {"temperature": float("inf")}
        document["grpoDoctorSeries"]["tracks"][0]["v"][3] = float("nan")
        spans = [e for e in document["traceEvents"] if e["ph"] == "X"]
        spans[0]["value"] = float("nan")
        spans[1]["args"] = {"lr": float("-inf"), "list": [float("nan"), 1]}
        counter = next(e for e in document["traceEvents"] if e["ph"] == "C")
        counter["args"] = {"%": float("nan")}

    trace = read_text(path, changed(path, break_it, lines=lines))
    assert len(trace.spans) == ROWS
    assert np.isnan(trace.series[0].values[3])
    assert trace.run.knobs == {"temperature": None}
    assert len([n for n in trace.loss.notes if "which JSON forbids" in n]) >= 1


def test_a_time_that_is_nan_costs_its_event(path: Path) -> None:
    text = path.read_text().split("\n")
    row = span_lines(path)[5]
    text[row] = re.sub(r'"ts":[\d.]+', '"ts":NaN', text[row])
    trace = read_text(path, "\n".join(text))
    assert len(trace.spans) == ROWS - 1
    assert trace.loss.notes == ("1 damaged events left out",)


BAD_EVENTS: dict[str, Any] = {
    "ts is text": {"ts": "soon"},
    "ts too large": {"ts": 1e300},
    "dur too large": {"dur": 1e18},
    "dur is null": {"dur": None},
    "tid past 64 bits": {"tid": 2**70},
    "tid is a fraction": {"tid": 1.5},
    "depth is text": {"depth": "deep"},
    "name is a list": {"name": ["a"]},
    "name is null": {"name": None},
    "ph is missing": {"ph": None},
    "pid is a list": {"pid": [1]},
    "value is text": {"value": "7"},
}


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("change", BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_one_bad_event_costs_only_itself(path: Path, change: Any, lines: bool) -> None:
    def break_one(document: dict[str, Any]) -> None:
        events = [e for e in document["traceEvents"] if e["ph"] == "X"]
        events[7].update(change)

    trace = read_text(path, changed(path, break_one, lines=lines))
    assert len(trace.spans) == ROWS - 1
    assert trace.loss.notes == ("1 damaged events left out",)
    assert not trace.loss.truncated


ODD_EVENTS: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown process": ({"pid": 99}, 1, "1 events of unknown processes left out"),
    "process by name": ({"pid": "rank 0"}, 1, "1 events of unknown processes left out"),
    "negative duration": ({"dur": -5.0}, 0, "1 events had negative durations, read as 0"),
    "negative start": ({"ts": -1000}, 0, ""),
    "negative track": ({"tid": -7}, 0, ""),
    "huge depth": ({"depth": 10**6}, 0, ""),
    "another kind": ({"ph": "b"}, 1, ""),
    "arguments are a list": ({"args": [1, 2]}, 0, ""),
    "arguments are missing": ({"args": None}, 0, ""),
}


@pytest.mark.parametrize(("change", "lost", "note"), ODD_EVENTS.values(), ids=ODD_EVENTS)
def test_an_odd_event_is_used_as_far_as_it_can_be(
    path: Path, change: dict[str, Any], lost: int, note: str
) -> None:
    def make_odd(document: dict[str, Any]) -> None:
        events = [e for e in document["traceEvents"] if e["ph"] == "X"]
        events[7].update(change)

    trace = read_text(path, changed(path, make_odd))
    assert len(trace.spans) == ROWS - lost
    assert trace.loss.notes == ((note,) if note else ())
    assert np.all(trace.spans.end_ns >= trace.spans.start_ns)
    assert len(trace.args) == len([a for a in trace.args if isinstance(a, dict)])


def test_rubbish_between_the_lines_costs_only_itself(path: Path) -> None:
    text = path.read_bytes().split(b"\n")
    row = span_lines(path)[10]
    text[row : row + 3] = [b"\x00\xff\xfe", b'{"ph":"X",', text[row + 2][:-40]]
    trace = read_text(path, b"\n".join(text))
    assert len(trace.spans) == ROWS - 3
    assert trace.loss.notes == ("3 damaged events left out",)


def test_bytes_that_are_no_utf8_in_arguments(path: Path) -> None:
    text = path.read_bytes().replace(b'"group":"world"', b'"group":"w\xff"')
    trace = read_text(path, text)
    assert len(trace.spans) == ROWS
    assert trace.args == ({"group": "w\ufffd"},)


def test_hostile_names_are_data(path: Path) -> None:
    builder = TraceBuilder()
    names = ["</script><script>alert(1)</script>", "__import__('os')", "\x00\x07", "é" * 10**5]
    for number, name in enumerate(names):
        builder.span(0, name, number, number + 1)
    write_trace(builder.build(), path)
    assert read_trace(path).names == (*names[:3], "é" * 200)


def test_overlapping_spans_are_kept(path: Path) -> None:
    builder = TraceBuilder()
    for number in range(50):
        builder.span(0, "rollout/request", number, number + 30)
    write_trace(builder.build(), path)
    spans = read_trace(path).spans
    assert (spans.end_ns - spans.start_ns).tolist() == [30 * 10**9] * 50
    assert set(spans.thread.tolist()) == {0}


def test_a_span_that_never_ended_ends_where_its_process_did(path: Path) -> None:
    builder = TraceBuilder()
    builder.step(0, 0, 0, {"train": 5.0}).open(0, "rollout", 2.0, 5.0)
    write_trace(builder.build(), path)
    opened = read_trace(path).spans
    opened = opened.select(opened.open)
    assert (opened.start_ns.tolist(), opened.end_ns.tolist()) == ([2 * 10**9], [5 * 10**9])
    assert Kind(opened.kind[0]) is Kind.SPAN


@pytest.mark.parametrize("name", ["missing.json", ".", "fifo"])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    if name == "fifo":
        os.mkfifo(tmp_path / name)
    with pytest.raises(TraceError, match=re.escape(str(tmp_path))):
        read_trace(tmp_path / name)


def test_a_file_that_expands_without_end_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor.trace.read._MAX_BYTES", 10_000_000)
    with pytest.raises(TraceError, match="larger than"):
        read_text(path, gzip.compress(b" " * 50_000_000))
    monkeypatch.setattr("grpo_doctor.trace.read._MAX_HEAD_BYTES", 1000)
    with pytest.raises(TraceError, match="have no grpo-doctor events"):
        read_text(path, b" " * 5_000_000)


@pytest.mark.parametrize("size", [16, 61, 512])
def test_a_file_is_the_same_in_blocks_of_any_size(
    path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_trace(path)
    monkeypatch.setattr(read, "_BLOCK_BYTES", size)
    pieces = read_trace(path)
    assert (pieces.run, pieces.names, pieces.args) == (expected.run, expected.names, expected.args)
    assert pieces.spans.end_ns.tolist() == expected.spans.end_ns.tolist()
    assert pieces.loss == expected.loss
