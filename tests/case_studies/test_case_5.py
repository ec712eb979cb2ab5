"""Real runs with few completions and heavy checkpoints, and a real error of two devices."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli import main
from tests.case_studies.case_5 import COMMAND, SMALL
from tests.case_studies.commandline import Flags, followed, launch, spelled
from tests.case_studies.recorded import Recorded, tool
from tests.recorded import Workshop
from tests.recorded.forks import shared

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = pytest.mark.slow
GIB = 2**30
SCRIPT = Path(__file__).with_name("two_devices.py")


def finding(run: Recorded, rule: str) -> dict[str, Any] | None:
    return next((f for f in run.document["findings"] if f["id"] == rule), None)


def evidence(issue: dict[str, Any], text: str) -> float:
    return float(next(e["value"] for e in issue["evidence"] if e["text"] == text))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def trained(flags: Flags, folder: Path) -> Recorded:
    """A run of one rank, in a fork of the process that has imported all it needs."""
    words = spelled({**flags, "output_dir": ("out",)})
    return reported(Workshop(shared()).train(words, folder, ranks=1))


def reported(run_dir: Path) -> Recorded:
    path = run_dir.with_name("report.json")
    assert main(["report", str(run_dir), "--json", "-o", str(path)]) == 0
    return Recorded(run_dir, json.loads(path.read_text()))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return trained(SMALL, tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def after(before: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The same with two of the fixes, as they were printed."""
    flags = SMALL
    for rule, index in (("GD061", 0), ("GD071", 1)):
        issue = finding(before, rule)
        assert issue is not None, rule
        flags = followed(flags, issue["fixes"][index]["spelling"])
    assert flags["save_only_model"] == ("true",)
    return trained(flags, tmp_path_factory.mktemp("after"))


def test_the_users_own_line_has_one_greedy_completion_and_no_processes() -> None:
    user = launch(COMMAND)
    assert user.flags["num_generations"] == ("1",)
    assert user.flags["temperature"] == ("0",)
    assert "deepspeed" not in user.flags
    assert "NPROC_PER_NODE" not in user.variables


def test_few_completions_are_told(before: Recorded) -> None:
    issue = finding(before, "GD061")
    assert issue is not None
    assert issue["fixes"][0]["spelling"] == "--num_generations 8"


def test_the_finding_says_what_is_really_on_the_disk(before: Recorded) -> None:
    issue = finding(before, "GD071")
    assert issue is not None
    out = before.folder.parent / "out"
    saved = sorted(out.glob("checkpoint-*"))
    weights = [(folder / "model.safetensors").stat().st_size for folder in saved]
    optimizer = [size_of(folder / "optimizer") for folder in saved]
    # The document keeps four digits of a number.
    assert evidence(issue, "weights per checkpoint") * GIB == pytest.approx(weights[0], rel=1e-3)
    assert evidence(issue, "optimizer state per checkpoint") * GIB == pytest.approx(
        optimizer[0], rel=1e-3
    )
    assert evidence(issue, "checkpoints kept") == len(saved)
    # 43 GB of 15: weights, and two moments of the same size.
    assert (weights[0] + optimizer[0]) / weights[0] == pytest.approx(43 / 15, rel=0.06)


def test_the_fix_as_printed_takes_the_optimizer_out(before: Recorded, after: Recorded) -> None:
    first, second = (size_of(run.folder.parent / "out" / "checkpoint-6") for run in (before, after))
    weights = (before.folder.parent / "out" / "checkpoint-6" / "model.safetensors").stat().st_size
    assert second < 1.1 * weights
    assert first > 2.5 * second
    assert finding(after, "GD071") is None
    assert finding(after, "GD061") is None


@pytest.mark.heavy
def test_a_job_that_died_of_two_devices_is_told_so_with_what_helps(tmp_path: Path) -> None:
    log = tool(["run", "-o", "run", "--", sys.executable, str(SCRIPT)], tmp_path, expect=1)
    assert "GD074" in log
    issue = finding(reported(tmp_path / "run"), "GD074")
    assert issue is not None
    assert issue["severity"] == "high"
    assert "is not on the expected device" in str(issue["evidence"][0]["value"])
    assert issue["phases"] == ["logprob"]
    assert "NPROC_PER_NODE" in issue["next_steps"][0]["text"]
