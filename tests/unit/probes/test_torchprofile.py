"""Profiling on demand: which steps, which process, and a torch that fails."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from tests.recording import PROBES, read_rows, run_job, spans_file

TORCH = """
class cuda:
    @staticmethod
    def is_initialized(): return False
"""
PROFILER = """
class ProfilerActivity: CPU, CUDA = "cpu", "cuda"
SAID = []
class record_function:
    def __init__(self, name): self.name = name
    def __enter__(self): SAID.append("+" + self.name)
    def __exit__(self, *error): SAID.append("-" + self.name)
class profile:
    def __init__(self, activities): SAID.append(activities)
    def start(self): SAID.append("start")
    def stop(self): SAID.append("stop")
    def export_chrome_trace(self, path): open(path, "w").write(repr(SAID))
"""
JOB = """
import torch
from grpo_doctor_probes import phase, step
with phase("init"):
    for number in range(1, 5):
        with step(number), phase("train"), phase("offload", direction="to_cpu"):
            pass
"""


def profiled(tmp_path: Path, asked: str, job: str = JOB, **more: str) -> Path:
    """Runs the job with a stand-in of torch; where its trace would be."""
    modules = tmp_path / "modules" / "torch"
    modules.mkdir(parents=True)
    (modules / "__init__.py").write_text(TORCH)
    (modules / "profiler.py").write_text(PROFILER)
    path = f"{PROBES}{os.pathsep}{modules.parent}"
    done = run_job(
        job, tmp_path, env={"GRPO_DOCTOR_TORCH_PROFILE": asked, "PYTHONPATH": path, **more}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path / "profiles" / f"rank-{more.get('RANK', '0').zfill(5)}.pt.trace.json"


def of_step(number: int) -> list[str]:
    inner = ["+train", "+offload", "-offload", "-train"]
    return [f"+ProfilerStep#{number}", *inner, f"-ProfilerStep#{number}"]


def test_the_chosen_steps_with_their_phases_and_nothing_else(tmp_path: Path) -> None:
    said = ast.literal_eval(profiled(tmp_path, "2:2", RANK="3").read_text())
    assert said == [["cpu"], "start", *of_step(2), *of_step(3), "stop"]
    steps = [row.value for row in read_rows(spans_file(tmp_path, 3)) if row.kind == "step"]
    assert steps == [1, 2, 3, 4]


def test_a_job_that_ends_early_leaves_what_there_was(tmp_path: Path) -> None:
    said = ast.literal_eval(profiled(tmp_path, "4:9").read_text())
    assert said == [["cpu"], "start", *of_step(4), "stop"]


@pytest.mark.parametrize("asked", ["9", "1.5", ""])
def test_no_such_step_or_nonsense_is_no_profile(tmp_path: Path, asked: str) -> None:
    assert not profiled(tmp_path, asked).exists()


def test_without_torch_there_is_none(tmp_path: Path) -> None:
    assert not profiled(tmp_path, "1", JOB.replace("import torch", "")).exists()


def test_a_profiler_that_fails_costs_nothing_but_its_trace(tmp_path: Path) -> None:
    breaking = JOB.replace("import torch", "import torch.profiler; del torch.profiler.profile")
    assert not profiled(tmp_path, "2", breaking).exists()
    rows = read_rows(spans_file(tmp_path))
    assert sum(row.kind == "step" for row in rows) == 4
    assert sum(row.name == "train" for row in rows) == 4
