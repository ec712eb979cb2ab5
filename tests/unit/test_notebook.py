"""What a notebook gets of a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

import grpo_doctor
from grpo_doctor.errors import TraceError, UsageError
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import healthy


def test_every_span_is_a_row(tmp_path: Path) -> None:
    build = TraceBuilder(ranks=2)
    for rank in range(2):
        build.step(rank, 0, 0.0, {"rollout": 2.0 + rank, "train": 1.0})
    write_trace(build.build(), tmp_path / "trace.json")
    spans = grpo_doctor.load(str(tmp_path / "trace.json")).frame()
    rollouts = spans[spans["name"] == "rollout"].set_index("rank")
    seconds = (rollouts.end_ns - rollouts.start_ns) / 1e9
    assert seconds.to_dict() == {0: pytest.approx(2.0), 1: pytest.approx(3.0)}
    assert not spans.open.any()


def test_a_chart_of_the_report_is_a_figure(tmp_path: Path) -> None:
    write_trace(healthy(), tmp_path / "trace.json")
    run = grpo_doctor.load(tmp_path / "trace.json")
    assert {"steps", "lanes", "heatmap", "waterfall"} <= set(run.figures)
    steps = run.figure("steps")
    assert steps.layout.xaxis.title.text == "time, s"
    assert all(run.figure(name).data for name in run.figures)
    with pytest.raises(UsageError, match="no figure 'step'; this recording has: waterfall, steps"):
        run.figure("step")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"):
        grpo_doctor.load(tmp_path / "gone")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        grpo_doctor.lod  # noqa: B018
