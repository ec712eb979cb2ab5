"""Profiling on demand: which steps, which process, and a torch that fails."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes import phase, step
from grpo_doctor_probes.procs import live
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.rundir import PROFILE_VARIABLE
from grpo_doctor_probes.record.sidecar import Role
from grpo_doctor_probes.record.torchprofile import TorchProfile
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


def profiled(tmp_path: Path, variable: str, job: str = JOB, **more: str) -> Path:
    """Runs the job with a stand-in of torch; where its trace would be."""
    modules = tmp_path / "modules" / "torch"
    modules.mkdir(parents=True)
    (modules / "__init__.py").write_text(TORCH)
    (modules / "profiler.py").write_text(PROFILER)
    path = f"{PROBES}{os.pathsep}{modules.parent}"
    result = run_job(
        job, tmp_path, env={"GRPO_DOCTOR_TORCH_PROFILE": variable, "PYTHONPATH": path, **more}
    )
    assert (result.returncode, result.stderr) == (0, "")
    return tmp_path / "profiles" / f"rank-{more.get('RANK', '0').zfill(5)}.pt.trace.json"


def of_step(number: int) -> list[str]:
    inner = ["+train", "+offload", "-offload", "-train"]
    return [f"+ProfilerStep#{number}", *inner, f"-ProfilerStep#{number}"]


def test_the_chosen_steps_with_their_phases_and_nothing_else(tmp_path: Path) -> None:
    calls = ast.literal_eval(profiled(tmp_path, "2:2", RANK="3").read_text())
    assert calls == [["cpu"], "start", *of_step(2), *of_step(3), "stop"]
    steps = [row.value for row in read_rows(spans_file(tmp_path, 3)) if row.kind == "step"]
    assert steps == [1, 2, 3, 4]


def test_a_job_that_ends_early_leaves_what_there_was(tmp_path: Path) -> None:
    calls = ast.literal_eval(profiled(tmp_path, "4:9").read_text())
    assert calls == [["cpu"], "start", *of_step(4), "stop"]


@pytest.mark.parametrize("variable", ["9", "1.5", ""])
def test_no_such_step_or_nonsense_is_no_profile(tmp_path: Path, variable: str) -> None:
    assert not profiled(tmp_path, variable).exists()


def test_without_torch_there_is_none(tmp_path: Path) -> None:
    assert not profiled(tmp_path, "1", JOB.replace("import torch", "")).exists()


def test_a_profiler_that_fails_costs_nothing_but_its_trace(tmp_path: Path) -> None:
    breaking = JOB.replace("import torch", "import torch.profiler; del torch.profiler.profile")
    assert not profiled(tmp_path, "2", breaking).exists()
    rows = read_rows(spans_file(tmp_path))
    assert sum(row.kind == "step" for row in rows) == 4
    assert sum(row.name == "train" for row in rows) == 4


class Profiler:
    """A stand-in of `torch.profiler`, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False) -> None:
        self.calls: list[object] = []
        self.breaks: set[str] = set()
        calls = self.calls

        class Range:
            def __init__(_, name: str) -> None:  # noqa: N805 - there is another self
                if name in self.breaks:
                    raise RuntimeError(name)
                _.name = name

            def __enter__(_) -> None:  # noqa: N805
                calls.append(f"+{_.name}")

            def __exit__(_, *error: object) -> None:  # noqa: N805
                calls.append(f"-{_.name}")

        profile = SimpleNamespace(
            start=lambda: calls.append("start"),
            stop=lambda: calls.append("stop"),
            export_chrome_trace=lambda path: calls.append(Path(path).name),
        )

        def made(activities: list[str]) -> SimpleNamespace:
            calls.append(activities)
            return profile

        module = SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CPU="cpu", CUDA="cuda"),
            record_function=Range,
            profile=made,
        )
        torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: cuda))
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setitem(sys.modules, "torch.profiler", module)


def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, *numbers: int) -> None:
    """Records these steps, each with a phase."""
    monkeypatch.setenv(PROFILE_VARIABLE, variable)
    assert recorder.start(str(tmp_path))
    for number in numbers:
        with step(number), phase("train", direction="to_cpu"):
            pass


def marked(number: int) -> list[str]:
    return [f"+ProfilerStep#{number}", "+train", "-train", f"-ProfilerStep#{number}"]


FILE = "rank-00000.pt.trace.json"


@pytest.mark.parametrize(
    ("variable", "profiled"),
    [
        ("2", [2]),
        ("2:1", [2]),
        ("2:3", [2, 3, 4]),
        ("4:9", [4]),
        ("0:2", [1]),
        ("5", []),
        ("x", []),
    ],
)
def test_which_steps_are_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, profiled: list[int]
) -> None:
    profiler = Profiler(monkeypatch)
    steps(tmp_path, monkeypatch, variable, 1, 2, 3, 4)
    recorder.stop()
    inside = [call for number in profiled for call in marked(number)]
    assert profiler.calls == ([["cpu"], "start", *inside, "stop", FILE] if profiled else [])
    assert sum(row.name == "train" for row in read_rows(spans_file(tmp_path))) == 4
    assert (tmp_path / "profiles").exists() is bool(profiled)


def test_a_profile_is_written_after_its_last_step_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is resumed goes back."""
    profiler = Profiler(monkeypatch, cuda=True)
    enter, leave = phase.__enter__, phase.__exit__
    steps(tmp_path, monkeypatch, "1:2", 1, 2)
    written = list(profiler.calls)
    assert written == [["cpu", "cuda"], "start", *marked(1), *marked(2), "stop", FILE]
    assert (phase.__enter__, phase.__exit__) == (enter, leave)
    steps(tmp_path, monkeypatch, "1:2", 1, 2, 3)
    recorder.stop()
    assert profiler.calls == written


def test_a_step_that_is_left_out_ends_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Profiler(monkeypatch)
    steps(tmp_path, monkeypatch, "1:2", 1, 7)
    assert profiler.calls == [["cpu"], "start", *marked(1), "+train", "-train", "stop", FILE]


def test_a_range_that_fails_costs_no_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    profiler.breaks.add("train")
    steps(tmp_path, monkeypatch, "1", 1)
    assert profiler.calls == [["cpu"], "start", "+ProfilerStep#1", "-ProfilerStep#1", "stop", FILE]
    assert [row.name for row in read_rows(spans_file(tmp_path))] == ["train", "step"]


@pytest.mark.parametrize(("role", "profiled"), [("driver", False), ("actor", True), (None, True)])
def test_a_driver_carries_no_work_to_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str | None, *, profiled: bool
) -> None:
    monkeypatch.setenv(PROFILE_VARIABLE, "1")
    driver = Role()
    if role is not None:
        driver.take(role)
    monkeypatch.setattr("grpo_doctor_probes.record.torchprofile.ROLE", driver)
    assert (TorchProfile.if_asked(str(tmp_path), 3) is not None) is profiled
    monkeypatch.delenv(PROFILE_VARIABLE)
    assert TorchProfile.if_asked(str(tmp_path), 3) is None


def test_without_torch_no_step_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = Profiler(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch", None)
    steps(tmp_path, monkeypatch, "1", 1)
    recorder.stop()
    assert profiler.calls == []
    assert recorder.ACTIVE is None
    assert live.read_header(spans_file(tmp_path)).errors == 0
