"""What is written is read back the same."""

from __future__ import annotations

import dataclasses
import gzip
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.errors import OutputError
from grpo_doctor.trace import events
from grpo_doctor.trace.columns import DTYPES
from grpo_doctor.trace.events import CLAMP_NS
from grpo_doctor.trace.model import Kind, Loss, Spans, Trace
from grpo_doctor.trace.read import read_trace
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    """The spans with names and arguments spelled out, and what is drawn of their ends."""
    spans = trace.spans
    return [
        (
            int(spans.process[i]),
            int(spans.start_ns[i]),
            trace.names[spans.name[i]],
            Kind(spans.kind[i]),
            int(spans.thread[i]),
            int(spans.depth[i]),
            float(spans.value[i]),
            bool(spans.open[i]),
            trace.args[spans.args[i]] if spans.args[i] >= 0 else None,
        )
        for i in range(len(spans))
    ]


def assert_same(first: Trace, second: Trace) -> None:
    """Equal but for the order of tables and the clamp that makes children nest."""
    assert sorted(rows(first), key=repr) == sorted(rows(second), key=repr)
    ends = [np.sort(t.spans.end_ns) for t in (first, second)]
    assert np.all(np.abs(ends[0] - ends[1]) <= CLAMP_NS)
    for name in ("run", "processes", "gpus", "loss"):
        assert getattr(first, name) == getattr(second, name)
    assert len(first.series) == len(second.series)
    for ours, theirs in zip(first.series, second.series):
        for field in dataclasses.fields(ours):
            a, b = getattr(ours, field.name), getattr(theirs, field.name)
            if field.name == "t_ns":
                assert np.all(np.abs(a - b) < 1000)
            elif field.name == "values":
                np.testing.assert_array_equal(a, b)
            else:
                assert a == b
    np.testing.assert_array_equal(first.metrics.steps, second.metrics.steps)
    assert first.metrics.values.keys() == second.metrics.values.keys()
    for key, values in first.metrics.values.items():
        np.testing.assert_array_equal(values, second.metrics.values[key])


def there_and_back(trace: Trace, name: str = "trace.json") -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(trace, Path(folder) / name)
        return read_trace(Path(folder) / name)


def everything() -> TraceBuilder:
    """A trace with something of each."""
    build = TraceBuilder(
        ranks=2,
        knobs={"offload.optimizer": True, "temperature": 0.9},
        config={"deepspeed": {"stage": 3}, "path": "höst · 模型", "none": None},
        loss=Loss(dropped_events=3, missing_ranks=(5,), truncated=True, notes=("lost some",)),
    )
    for rank in (0, 1):
        for number in range(3):
            build.step(rank, number, 1.0 * number, {"rollout": 0.6, "train": 0.4})
            build.collective(rank, number + 1, number + 0.7, number + 0.9)
        build.row(Kind.CUDA_SPAN, rank, "train", 0.6, 1.0, value=399.5)
        build.row(Kind.COLLECTIVE_WAIT, rank, "wait", 0.9, 0.95, value=2.0, depth=2)
        build.row(Kind.INSTANT, rank, "oom", 0.3, 0.3)
        build.span(rank, "reward", 0.1, 0.2, thread=4, args={"name": "accuracy"})
    build.open(1, "rollout", 3.0, 3.0)
    build.gpu("GPU-1").metrics(0, loss=0.5, reward=math.nan).metrics(1, loss=math.inf)
    build.series("gpu.power", "W", [0, 1, 2.5], [300, math.nan, 410.25], scope="gpu", gpu="GPU-1")
    build.series("host.cpu", "%", [0.1], [12.5])
    build.series("tokens", "", [0.5], [100.0], scope="counter", rank=1)
    return build


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_everything_comes_back(name: str) -> None:
    trace = everything().build()
    # What never ended is drawn to its process's last moment, which is what the model says of it.
    assert_same(trace, there_and_back(trace, name))


ROWS = st.lists(
    st.tuples(
        st.sampled_from([k for k in Kind if k is not Kind.STEP]),
        st.integers(0, 1),
        st.text(max_size=8),
        st.integers(0, 10**12),
        st.integers(0, 10**9),
        st.integers(0, 200),
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(0, 63),
        st.none()
        | st.dictionaries(st.text(max_size=3), st.integers(-5, 5), min_size=1, max_size=2),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_any_spans_come_back(table: list[tuple[Any, ...]]) -> None:
    build = TraceBuilder(ranks=2)
    for kind, rank, name, start, length, depth, value, thread, args in table:
        end = start if kind is Kind.INSTANT else start + length
        build.row(
            kind, rank, name, start / 1e9, end / 1e9,
            depth=depth, value=value, thread=thread, args=args,
        )  # fmt: skip
    trace = build.build()
    assert_same(trace, there_and_back(trace))


def test_an_empty_trace_comes_back() -> None:
    trace = TraceBuilder(ranks=0).build()
    assert_same(trace, there_and_back(trace))


def test_the_file_is_private_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(everything().build(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("name", ["missing/trace.json", ".", "file/trace.json"])
def test_a_place_that_can_not_be_written_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"can't write .*another place"):
        write_trace(everything().build(), tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    assert list(tmp_path.parent.glob("*.tmp")) == []


def test_a_write_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_trace(everything().build(), tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_compressed_files_are_the_same_each_time(tmp_path: Path) -> None:
    paths = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    for path in paths:
        write_trace(everything().build(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert gzip.decompress(paths[0].read_bytes()).startswith(b'{\n"schemaVersion"')


@pytest.mark.slow
def test_hundreds_of_thousands_of_names(tmp_path: Path) -> None:
    build = TraceBuilder()
    for number in range(100_000):
        build.span(0, f"name {number}", number, number + 1)
    trace = build.build()
    back = there_and_back(trace)
    assert len(back.names) == 100_000
    assert back.spans.start_ns.tolist() == trace.spans.start_ns.tolist()


def test_columns_have_the_models_types() -> None:
    spans: Spans = there_and_back(everything().build()).spans
    assert {n: getattr(spans, n).dtype for n in DTYPES} == {
        n: np.dtype(t) for n, t in DTYPES.items()
    }
    assert set(events.CATEGORIES) == set(Kind)
