"""A trace of a job that cannot run here; its knobs are read from its command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_doctor import knobs
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor.findings.engine import Results
from tests.build import SECOND, TraceBuilder
from tests.case_studies.commandline import launch
from tests.unit.findings.example_runs import HEALTHY, run

VERSION = "3.2.2"  # of ms-swift, when the threads were written
GIB = 2**30


@dataclass(frozen=True)
class Cards:
    """The GPUs of a user: how many, their memory in GiB, and what a job holds in its phases."""

    count: int
    memory_gib: float
    rollout_gib: float
    train_gib: float


def traced(
    command: str, cards: Cards, phases: Mapping[str, float] = HEALTHY, parameters: float = 7.6e9
) -> TraceBuilder:
    """Six steps of the job on these cards; `phases` are seconds of a step."""
    words = shlex.split(command.replace("\\\n", " "))
    build = run(
        phases,
        ranks=cards.count,
        knobs=knobs.from_command("ms-swift", VERSION, words),
        memory_gib=None,
        framework="ms-swift",
        framework_version=VERSION,
        config={"model_parameters": int(parameters), "torch_dtype": "bfloat16"},
    )
    for rank in range(cards.count):
        _memory(build, cards, rank)
    assert int(launch(command).variables["NPROC_PER_NODE"]) == cards.count
    return build


def _memory(build: TraceBuilder, cards: Cards, rank: int) -> None:
    rows = build._rows
    changes = []
    for i, process in enumerate(rows["process"]):
        name = build._names.names[rows["name"][i]]
        if process == rank and name in ("rollout", "train"):
            held_gib = cards.rollout_gib if name == "rollout" else cards.train_gib
            changes.append((rows["start_ns"][i] / SECOND, held_gib * GIB))
    changes.sort()
    gpu = f"GPU-{rank}"
    build.gpu(gpu, index=rank, memory_gib=cards.memory_gib)
    times, held_bytes = zip(*changes)
    build.series("gpu.memory_used", "bytes", times, held_bytes, scope="gpu", gpu=gpu)


def ran_out(build: TraceBuilder, phase: str, rank: int = 0) -> TraceBuilder:
    """The job ended because memory ran out in this phase."""
    build.series(f"memory/out_of_memory/{phase}", "", [1.0], [0.0], scope="counter", rank=rank)
    return build


def judged(build: TraceBuilder) -> Results:
    """What every rule says."""
    return run_rules(RunView.of(build.build()))


def spellings(results: Results, rule: str) -> list[str]:
    """The fixes of a rule that has a finding, as printed."""
    finding = next(f for r, f in results.findings if r.id == rule)
    return [fix.spelling for fix in finding.fixes]


def note(results: Results, rule: str) -> str:
    """What a rule that found nothing says."""
    return next(p.note for r, p in results.passed if r.id == rule)
