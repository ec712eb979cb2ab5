"""The jobs that are treated: of each handicap, the options one of which removes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.accuracy.fixes import FIXES, Fix, arguments
from tests.accuracy.inputs import make
from tests.frameworks import inputs
from tests.frameworks.advice import jobs as others
from tests.frameworks.advice.cases import CASES, Case
from tests.frameworks.environments import python_of
from tests.frameworks.recorded_jobs import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
SLOW = ROOT / "docs" / "examples" / "slow_reward.py"
SEED = 1


@dataclass(frozen=True)
class Job:
    """A command with its variables. `removes` is empty for a healthy one; `again` how often it is
    treated."""

    name: str
    words: tuple[str, ...]
    removes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    again: int = 1


# Of the fixes whose predictions are measured, by name, and what removes the handicap.
_TRAINER = {
    "loader processes 0 to 2": ("--dataloader_num_workers",),
    "micro-batch 2 to 8": ("--per_device_train_batch_size",),
    "checkpoints every 2 to every 8 steps": ("--save_steps", "--save_only_model"),
}
_OTHERS = {
    "loader processes": ("--dataloader_num_workers",),
    "micro-batch and accumulation": ("--per_device_train_batch_size",),
    "recomputed activations": ("--gradient_checkpointing",),
    "checkpoints": ("--save_steps", "--save_only_model"),
}
_LEFT_OUT = ("swift", "checkpoints")
_HEALTHY = 3


def jobs(folder: Path) -> Iterator[Job]:
    """Make the inputs, and return all jobs: the demo, three of the trainer, of TRL and of ms-swift,
    two healthy. Without an environment of ms-swift there is none of these."""
    demo = f"--reward_funcs {SLOW}:judged --offload_optimizer true --max_steps 30"
    removes = ("--gc_collect_after_offload", "--offload_optimizer")
    yield Job("demo", (*demo.split(), "--gc_collect_after_offload", "true"), removes)
    data = folder / "inputs"
    if not data.exists():
        make(data)
    for fix in FIXES:
        if fix.name in _TRAINER:
            yield Job(f"trainer: {fix.name}", _words(fix, data), _TRAINER[fix.name],
                      fix.environment)  # fmt: skip
    model, rows = inputs.write_model(folder / "model"), others.write_rows(folder / "rows.jsonl")
    swift = python_of(ENVIRONMENTS / "env-swift")
    machines = {"trl": others.Machine(Path(sys.executable), model, data)}
    if swift.exists():
        machines["swift"] = others.Machine(swift, model, rows)
    for case in CASES:
        has_job = case.name in _OTHERS and (case.framework, case.name) != _LEFT_OUT
        if has_job and case.framework in machines:
            yield _of_framework(case, machines[case.framework], folder, _OTHERS[case.name])
    yield Job("healthy: trainer", ("--seed", "7"), again=_HEALTHY)
    yield _of_framework(Case("trl", "healthy", ""), machines["trl"], folder, ())


def _words(fix: Fix, data: Path) -> tuple[str, ...]:
    return tuple(arguments(fix.before, data, SEED))


def _of_framework(
    case: Case, machine: others.Machine, folder: Path, removes: tuple[str, ...]
) -> Job:
    words = others.command(case, machine, folder / "unused", SEED)
    variables = {
        name: value
        for name, value in others.environment(machine, case.work).items()
        if os.environ.get(name) != value
    }
    again = 1 if removes else _HEALTHY
    name = f"{case.framework}: {case.name}" if removes else f"healthy: {case.framework}"
    return Job(name, tuple(words), removes, variables, again)
