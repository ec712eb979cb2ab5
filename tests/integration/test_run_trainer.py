"""The main job, end to end: the bundled trainer under `grpo-doctor run`, whole and killed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.trace.model import Kind
from grpo_doctor.trace.read import load

pytest.importorskip("deepspeed", reason="needs the trainer extra")
pytestmark = pytest.mark.slow
PATIENCE_S = 500
ROOT = Path(__file__).parents[2]


def command(folder: Path, *flags: str) -> list[str]:
    return [
        sys.executable, "-m", "grpo_doctor", "run", "-o", str(folder), "--nproc", "2",
        "--json", "--", "--output_dir", str(folder.parent / "out"), *flags,
    ]  # fmt: skip


def demo_flags(target: str) -> list[str]:
    """The trainer's flags of `make demo` or `make demo-fixed`."""
    shown = subprocess.run(
        ["make", "--dry-run", "--old-file", ".venv/.ready", target],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (run,) = [line for line in shown.stdout.splitlines() if "grpo-doctor run " in line]
    return shlex.split(run.partition(" -- ")[2])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `make demo` runs, with fewer steps; the result of `--json`."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    done = subprocess.run(
        command(folder, *demo_flags("demo"), "--max_steps", "9", "--save_steps", "5"),
        cwd=ROOT,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout[done.stdout.rindex('\n{\n "schema"') :])
    return result


@pytest.mark.heavy
def test_every_phase_of_both_ranks_is_there_and_nothing_is_lost(demo: dict[str, Any]) -> None:
    trace = load(Path(demo["trace"]))
    assert trace.ranks == (0, 1)
    assert not trace.loss.any, trace.loss
    frame = trace.frame()
    phases = {
        "init",
        "dataload",
        "rollout",
        "reward",
        "logprob",
        "train",
        "optimizer",
        "checkpoint",
    }
    for rank in trace.ranks:
        assert phases <= set(frame[frame["rank"] == rank]["name"])
    assert set(trace.metrics.steps) == set(range(1, 10))
    assert trace.run.framework == "bundled"
    assert trace.run.knobs["deepspeed.stage"] == 2


@pytest.mark.heavy
def test_almost_all_of_a_step_is_attributed(demo: dict[str, Any]) -> None:
    assert demo["summary"]["steps"] >= 6
    assert demo["summary"]["unattributed"]["share"] < 0.02
    assert set(demo["summary"]["phases"]) >= {"rollout", "train"}


@pytest.mark.heavy
def test_its_report_says_what_demo_fixed_changes(demo: dict[str, Any]) -> None:
    findings = json.loads((Path(demo["trace"]).parent / "findings.json").read_text())["findings"]
    (finding,) = [finding for finding in findings if finding["id"] == "GD011"]
    fix = finding["fixes"][0]
    assert fix["predicted"]["mid"] < 0
    knob, value = fix["spelling"].split()
    flags, fixed = demo_flags("demo"), demo_flags("demo-fixed")
    assert len(flags) == len(fixed)
    positions = [at for at, pair in enumerate(zip(flags, fixed, strict=True)) if len(set(pair)) > 1]
    assert [fixed[at - 1 : at + 1] for at in positions] == [[knob, value]]


@pytest.mark.heavy
def test_collectives_of_both_ranks_match(demo: dict[str, Any]) -> None:
    trace = load(Path(demo["trace"]))
    rows = trace.spans.kind == Kind.COLLECTIVE
    sequences = [
        sorted((trace.args[a]["group"], int(v)) for a, v in zip(spans.args, spans.value))
        for process in trace.processes
        if process.role == "trainer"  # not the processes of reward functions
        for spans in [trace.spans.select(rows & (trace.spans.process == process.index))]
    ]
    assert len(sequences) == 2
    assert sequences[0] == sequences[1]
    assert len(sequences[0]) > 12


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--max_stepz", "3"], "--max_steps"), (["--num_generations", "7"], "valid values here")],
)
def test_a_wrong_flag_is_one_message_before_anything_starts(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    folder = tmp_path / "run"
    done = subprocess.run(
        command(folder, *flags), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not folder.exists()
