"""Whether two runs can be compared at all, and what to keep in mind if so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from grpo_doctor.compare.run import ComparedRun
from grpo_doctor.trace.model import Run

# Batches that differ by more than this do different work per step.
_TOKENS_TOLERANCE = 0.10
# Long completions and checkpoints make a step some times longer, not twenty.
_LONG_STEP = 20.0
_BATCH = ("train.micro_batch", "train.grad_accumulation")
_GENERATIONS = "rollout.num_generations"
_NO_PHASES = "GD075"


def obstacles(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Reasons why their step times can't be compared; none where they can."""
    reasons = []
    for name, run in (("BEFORE", before), ("AFTER", after)):
        if not len(run.analysis.steps.numbers):
            unmarked = any(rule.id == _NO_PHASES for rule, _ in run.results.findings)
            what = f"no step markers (see {_NO_PHASES})" if unmarked else "no step"
            reasons.append(f"{name} contains {what}")
        elif not len(run.step_seconds):
            reasons.append(f"{name} has no step that ended on all ranks")
    return reasons


def differences_of_jobs(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Return what makes the two runs different jobs, as far as both runs say it."""
    first, second = before.trace.run, after.trace.run
    pairs = (
        ("the model", before.model, after.model),
        ("the size of the model", before.model_size, after.model_size),
        ("the number of ranks", first.world_size or None, second.world_size or None),
        ("the framework", _known(first.framework), _known(second.framework)),
    )
    return [
        f"{what} changed from {a} to {b}"
        for what, a, b in pairs
        if a is not None and b is not None and a != b
    ]


def cautions(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Return what else differs, and so may be the reason of a difference."""
    first, second = before.trace.run, after.trace.run
    causes = differences_of_jobs(before, after)
    for what, a, b in (
        ("the framework version", first.framework_version, second.framework_version),
        ("the GPUs", before.side().gpus, after.side().gpus),
        ("the hosts", _hosts(before), _hosts(after)),
    ):
        if (
            a
            and b
            and a != b
            and not (what.endswith("version") and first.framework != second.framework)
        ):
            causes.append(f"{what} changed from {a} to {b}")
    causes += _not_recorded(before, after)
    causes += _other_work(before, after)
    causes += _tokens(before, after)
    for name, run in (("BEFORE", before), ("AFTER", after)):
        if run.trace.run.exit.state not in ("finished", "running", "unknown"):
            causes.append(f"{name} {run.trace.run.exit.state}")
        if run.trace.loss.any:
            causes.append(f"the recording of {name} is incomplete")
        causes += _broken_steps(name, run)
    return causes


def _known(framework: str) -> str | None:
    return None if framework == "unknown" else framework


def _broken_steps(name: str, run: ComparedRun) -> list[str]:
    """Steps that ranks did not all end, ranks without any, and one that took as long as many."""
    broken, steps, seconds = [], run.analysis.steps, run.step_seconds
    open_steps = int((~steps.closed[:, steps.stepping].all(axis=1)).sum())
    if open_steps:
        broken.append(
            f"{name} has {open_steps} of {len(steps.numbers)} steps that did not end on "
            "all ranks; they are excluded"
        )
    silent = int((~steps.stepping).sum())
    if silent and steps.stepping.any():
        broken.append(f"{name} has no steps on {silent} of {len(steps.stepping)} ranks")
    usual = float(np.median(seconds)) if len(seconds) else 0.0
    if usual and seconds.max() > _LONG_STEP * usual:
        broken.append(
            f"one step of {name} took {seconds.max() / usual:.0f} times as long as usual: "
            "the machine paused, or its clock jumped; means depend on that step"
        )
    return broken


def _other_work(before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """Settings of both runs that make a step another piece of work: a batch that is only split
    differently is the same batch."""
    batches = before.batch, after.batch
    same_batch = batches[0] is not None and batches[0] == batches[1]
    first, second = before.trace.run.facts, after.trace.run.facts
    for name in (_GENERATIONS,) if same_batch else (*_BATCH, _GENERATIONS):
        a, b = first.get(name), second.get(name)
        if a is not None and b is not None and a != b:
            yield f"steps are not comparable: {name} changed from {a} to {b}"


def _not_recorded(before: ComparedRun, after: ComparedRun) -> Iterator[str]:
    """What only one run says of the work of a step, so whether it changed is unknown."""
    one, two = _of_the_work(before.trace.run), _of_the_work(after.trace.run)
    for name, own, other in (("BEFORE", one, two), ("AFTER", two, one)):
        missing = [what for what in own if own[what] is None and other[what] is not None]
        if missing:
            yield f"not recorded of {name}: {', '.join(missing)}"


def _of_the_work(run: Run) -> dict[str, Any]:
    """Return what decides the work of a step, None where it was not recorded."""
    return {
        "the framework": _known(run.framework),
        "the number of ranks": run.world_size or None,
        **{name: run.facts.get(name) for name in (*_BATCH, _GENERATIONS)},
    }


def _tokens(before: ComparedRun, after: ComparedRun) -> list[str]:
    tokens = before.step_tokens, after.step_tokens
    if tokens[0] is None or tokens[1] is None:
        return []
    ratio = float(tokens[1].mean() / tokens[0].mean())
    if abs(ratio - 1) <= _TOKENS_TOLERANCE:
        return []
    more = f"{abs(100 * (ratio - 1)):.0f}% {'more' if ratio > 1 else 'fewer'}"
    return [f"AFTER generates {more} tokens per step; compare time per token instead"]


def _hosts(run: ComparedRun) -> str:
    return ", ".join(sorted({process.host for process in run.trace.processes}))
