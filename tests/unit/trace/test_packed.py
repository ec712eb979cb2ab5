"""Spans as columns: whole where events are cut, refused where damaged."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_doctor.errors import TraceError
from grpo_doctor.trace.events import MAX_NAME
from grpo_doctor.trace.model import Trace
from grpo_doctor.trace.read import read_trace
from grpo_doctor.trace.write import write_trace
from tests.unit.trace.test_read import build
from tests.unit.trace.test_round_trip import assert_same

KEY = "grpoDoctorSpans"
LINE = re.compile(rf'"{KEY}":.*?\n(?="traceEvents")', re.DOTALL)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    write_trace(build(), path)
    return path


def changed(path: Path, change: Callable[[Any], Any]) -> Trace:
    """The trace after a change of its columns."""
    text = path.read_text()
    packed = json.loads(text)[KEY]
    change(packed)
    path.write_text(LINE.sub(lambda _: f'"{KEY}":{json.dumps(packed)},\n', text))
    return read_trace(path)


@pytest.mark.parametrize("packed", [False, True])
def test_events_that_are_cut_cost_no_span_and_are_said(path: Path, packed: bool) -> None:
    text = path.read_bytes()
    if packed:
        whole = gzip.compress(text)
        path.write_bytes(whole[: len(whole) - 60])
    else:
        path.write_bytes(text[: text.index(b'"traceEvents"') + 400])
    trace = read_trace(path)
    assert trace.loss.truncated
    (note,) = trace.loss.notes
    assert note == "trace.json is cut off: its spans are complete, events for viewers are not"
    assert_same(replace(trace, loss=build().loss), build())


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_file_is_not_called_cut_off(path: Path, packed: bool) -> None:
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_trace(path).loss == build().loss


def test_names_that_are_cut_to_one_text_are_one_name(tmp_path: Path) -> None:
    long = "n" * MAX_NAME
    trace = build()
    path = tmp_path / "trace.json"
    write_trace(replace(trace, names=(long + "a", long + "b", *trace.names[2:])), path)
    names = read_trace(path).names
    assert names.count(long) == 1
    assert len(names) == len(trace.names) - 1


def column(name: str, type_: str, *values: float) -> Callable[[Any], Any]:
    data = base64.b64encode(np.array(values, dtype=type_).tobytes()).decode()
    return lambda packed: packed["blocks"][0].update({name: {"type": type_, "data": data}})


DAMAGE: dict[str, Callable[[Any], Any]] = {
    "no blocks": lambda packed: packed.pop("blocks"),
    "an unknown process": lambda packed: packed["blocks"][0].update(pid=77),
    "a name twice": lambda packed: packed["names"].append(packed["names"][0]),
    "an unknown type": lambda packed: packed["blocks"][0]["name"].update(type="O"),
    "no Base64": lambda packed: packed["blocks"][0]["name"].update(data="?"),
    "half an item": lambda packed: packed["blocks"][0]["start_ns"].update(type="i2", data="AAAA"),
    "rows that are missing": column("kind", "u1", 1, 1),
    "no rows": column("kind", "u1"),
    "a name past the table": column("name", "i2", 999),
    "a negative name": column("name", "i2", -1),
    "arguments past the table": column("args", "i2", 999),
    "an unknown kind": column("kind", "u1", 3),
    "a negative duration": column("dur_ns", "i2", -1),
    "a negative thread": column("thread", "i2", -1),
    "a depth past 8 bits": column("depth", "i2", 256),
    "a time past 36 years": column("dur_ns", "i8", 1 << 61),
    "a value that is no number": column("value", "f8", float("nan")),
    "a time that is no number": column("dur_ns", "f8", float("nan")),
    "an infinite name": column("name", "f8", float("inf")),
    "one start for many rows": column("start_ns", "i8", 5),  # it would take memory for all of them
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_columns_are_refused(path: Path, name: str) -> None:
    with pytest.raises(
        TraceError, match=r"is damaged: the columns of its spans \(.*point `report`"
    ):
        changed(path, DAMAGE[name])
