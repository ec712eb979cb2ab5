"""`grpo-doctor compare` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.cli import main
from grpo_doctor.cli.compare import regression_code
from grpo_doctor.trace.write import write_trace
from tests.build import TraceBuilder
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import healthy, offloaded


@pytest.fixture
def traces(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "slow.json", tmp_path / "fast.json"
    write_trace(offloaded().build(), paths[0])
    write_trace(healthy(), paths[1])
    return str(paths[0]), str(paths[1])


def test_text_json_and_page(traces: tuple[str, str], tmp_path: Path, capfd: Captured) -> None:
    slow, fast = traces
    page = tmp_path / "page.html"
    assert main(["compare", slow, fast, "--html", str(page)]) == 0
    assert capfd.readouterr().out.startswith("AFTER takes 17% less time per step")
    assert page.read_text().startswith("<!doctype html>")
    assert main(["compare", slow, fast, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert (document["schema"], document["before"]["source"]) == (1, "slow.json")


def test_runs_that_can_not_be_compared_end_with_eight(
    traces: tuple[str, str], tmp_path: Path, capfd: Captured
) -> None:
    empty = tmp_path / "empty.json"
    write_trace(TraceBuilder(ranks=2).build(), empty)
    for pair in ((traces[0], str(empty)), (str(empty), traces[0])):
        assert main(["compare", *pair]) == 8
        assert "These runs can't be compared" in capfd.readouterr().out


def test_a_regression_ends_with_seven(traces: tuple[str, str]) -> None:
    slow, fast = traces
    assert main(["compare", fast, slow, "--json", "--fail-on-regression", "5"]) == 7
    assert main(["compare", slow, fast, "--json", "--fail-on-regression", "5"]) == 0
    assert main(["compare", fast, slow, "--json", "--fail-on-regression", "50"]) == 0
    assert main(["compare", slow, slow, "--json", "--fail-on-regression", "0"]) == 0


@pytest.mark.parametrize(
    ("change", "low", "comparable", "code"),
    [
        (5.1, 0.1, True, 7),
        (5.0, 0.1, True, 0),
        (5.1, 0.0, True, 0),
        (-5.1, -9.0, True, 0),
        (5.1, 0.1, False, 8),
        (None, None, True, 8),
        (5.1, None, True, 8),
    ],
)
def test_a_regression_is_beyond_the_limit_and_surely_one(
    change: float | None, low: float | None, comparable: bool, code: int
) -> None:
    step = SimpleNamespace(change_pct=change, low_pct=low)
    comparison: Any = SimpleNamespace(comparable=comparable, step_time=step)
    assert regression_code(comparison, 5.0) == code
