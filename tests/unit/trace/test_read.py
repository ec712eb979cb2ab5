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
from grpo_doctor.trace.model import FORMAT, Trace
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
    path = tmp_path / "trace.json"
    write_trace(build(), path)
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


def test_a_file_cut_off_anywhere_has_all_its_spans_or_is_refused(path: Path) -> None:
    text = path.read_bytes()
    head = text.index(b'"traceEvents":[')
    sizes = {*range(0, len(text) - 1, 97), head - 1, head, head + 15, head + 16, len(text) - 3}
    for size in sorted(sizes):
        if size < head + 15:
            refused(path, text[:size], "is empty|is damaged|is not a grpo-doctor trace")
            continue
        trace = read_text(path, text[:size])
        assert (len(trace.spans), trace.loss.truncated) == (ROWS, True), size
        assert any("cut off" in note for note in trace.loss.notes)


def test_a_file_of_a_version_without_columns_is_refused_by_that_version(path: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        del document["grpoDoctorSpans"]
        document["grpoDoctor"]["version"] = "0.0.9"

    refused(path, changed(path, older), "was written by 0.0.9, which kept no columns")


@pytest.mark.parametrize("size", [2, 10, 100])
def test_a_compressed_file_cut_off_in_its_head(path: Path, size: int) -> None:
    refused(path, gzip.compress(path.read_bytes())[:size], "is damaged")


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
    "text": (b"Traceback (most recent call last):\n", "it has no `grpoDoctor` object. Record"),
    "yaml": (b"learning_rate: 1e-6\n", "it has no `grpoDoctor` object. Record"),
    "html": (b"<!doctype html><script>alert(1)</script>", "it has no `grpoDoctor` object. Record"),
    "binary": (bytes(range(256)) * 100, "it has no `grpoDoctor` object. Record"),
    "zeros": (bytes(100_000), "it has no `grpoDoctor` object. Record"),
    "number": (b"7", "it has no `grpoDoctor` object. Record"),
    "null": (b'{"grpoDoctor":null,"traceEvents":[]}', "another program"),
    "findings": (b'{"schema":1,"run":{"id":"x"}}', "it has no `grpoDoctor` object. Record"),
    "utf-16": ('{"grpoDoctor":{}}'.encode("utf-16"), "it has no `grpoDoctor` object. Record"),
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


@pytest.mark.parametrize("lines", [True, False])
def test_bare_nan_costs_the_number_and_is_said(path: Path, lines: bool) -> None:
    def break_it(document: dict[str, Any]) -> None:
        document["grpoDoctor"]["knobs"] = {"temperature": float("inf")}
        document["grpoDoctorSeries"]["tracks"][0]["v"][3] = float("nan")
        counter = next(e for e in document["traceEvents"] if e["ph"] == "C")
        counter["args"] = {"%": float("nan")}

    trace = read_text(path, changed(path, break_it, lines=lines))
    assert len(trace.spans) == ROWS
    assert np.isnan(trace.series[0].values[3])
    assert trace.run.knobs == {"temperature": None}
    assert len([n for n in trace.loss.notes if "which JSON forbids" in n]) >= 1


def test_hostile_names_are_data(path: Path) -> None:
    builder = TraceBuilder()
    names = ["</script><script>alert(1)</script>", "__import__('os')", "\x00\x07", "é" * 10**5]
    for number, name in enumerate(names):
        builder.span(0, name, number, number + 1)
    write_trace(builder.build(), path)
    assert read_trace(path).names == (*names[:3], "é" * 200)


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
