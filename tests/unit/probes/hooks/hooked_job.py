"""Starts a small Python job whose framework stands in a temporary folder, with the hooks on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.trace.read import load
from grpo_doctor_probes.supervisor.launch import STARTUP
from grpo_doctor_reports.schema.trajectories import Trajectories

TRAINER = '''
class State:
    global_step = 0

class Arguments:
    def to_dict(self):
        return {"num_generations": 4, "learning_rate": 1e-6, "hub_token": "hf_secret"} | vars(self)

class Accelerated:
    state = None

class Trainer:
    def __init__(self, steps=3, reward_funcs=()):
        self.state, self.args, self.accelerator = State(), Arguments(), Accelerated()
        self.steps, self.reward_funcs = steps, list(reward_funcs)

    def is_world_process_zero(self):
        return True

    def train(self, resume=None):
        for _ in range(self.steps):
            self.get_batch_samples(iter(()), 1)
            self.training_step()
            self.state.global_step += 1
            self.log({"loss": 0.5, "reward": float(self.state.global_step)})
        return "trained"

    def get_batch_samples(self, iterator, count):
        return [], 0

    def training_step(self):
        """One micro-batch."""
        return self.compute_loss()

    def compute_loss(self):
        return [reward() for reward in self.reward_funcs]

    def log(self, logs, start_time=None):
        self.logged = logs
'''


def write_packages(folder: Path, modules: Mapping[str, str]) -> None:
    """Writes modules, by dotted name, with the packages that they are in."""
    for name, text in modules.items():
        *packages, last = name.split(".")
        path = folder
        for package in packages:
            path /= package
            path.mkdir(exist_ok=True)
            (path / "__init__.py").touch()
        (path / f"{last}.py").write_text(textwrap.dedent(text))


def run_job(
    folder: Path,
    program: str,
    *,
    modules: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
    python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Runs a program with stand-in modules on its path; its recording is in `folder/run`."""
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    write_packages(packages, modules or {})
    script = folder / "job.py"
    script.write_text(textwrap.dedent(program))
    hooked = {
        "GRPO_DOCTOR": "1",
        "GRPO_DOCTOR_RUN_DIR": str(folder / "run"),
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{packages}",
    }
    base = {name: value for name, value in os.environ.items() if not name.startswith("GRPO_")}
    return subprocess.run(
        [python, *options, str(script)],
        env={**base, **hooked, **(environment or {})}, cwd=folder,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def recorded(folder: Path) -> Trace:
    """What the job left."""
    return load(folder / "run")


def trajectories(
    folder: Path, program: str, modules: Mapping[str, str], prints: str = ""
) -> Trajectories:
    """The trajectories that such a job leaves; nothing goes wrong in it, nor in the hooks."""
    result = run_job(folder, program, modules=modules)
    assert (result.returncode, result.stdout, result.stderr) == (0, prints, "")
    trace = recorded(folder)
    assert not any("internal" in note or "damaged" in note for note in trace.loss.notes)
    assert trace.trajectories is not None
    return trace.trajectories


def span_names(trace: Trace) -> list[str]:
    """The names of all spans in the order of their start."""
    spans = trace.spans
    rows = (spans.kind == Kind.SPAN).nonzero()[0]
    ordered = sorted(rows.tolist(), key=lambda row: (spans.start_ns[row], spans.depth[row]))
    return [trace.names[spans.name[row]] for row in ordered]


def step_numbers(trace: Trace) -> list[int]:
    """The numbers of all recorded steps."""
    steps = trace.spans.kind == Kind.STEP
    return [int(value) for value in trace.spans.value[steps]]
