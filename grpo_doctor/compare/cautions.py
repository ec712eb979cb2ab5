"""Whether two runs can be compared at all, and what to keep in mind if so."""

from __future__ import annotations

import numpy as np

from grpo_doctor.compare.run import ComparedRun

# Batches that differ by more than this do different work per step.
_TOKENS_TOLERANCE = 0.10
# Long completions and checkpoints make a step some times longer, not twenty.
_LONG_STEP = 20.0
_BATCH = ("train.micro_batch", "train.grad_accumulation")


def obstacles(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Reasons why their step times can't be compared; none where they can."""
    reasons = []
    for name, run in (("before", before), ("after", after)):
        if not len(run.analysis.steps.numbers):
            reasons.append(f"the run {name} has no steps: record it with `grpo-doctor run`")
        elif not len(run.step_seconds):
            reasons.append(f"the run {name} has no step that ended on all ranks")
    return reasons


def cautions(before: ComparedRun, after: ComparedRun) -> list[str]:
    """What else differs, and so may be the reason of a difference."""
    first, second = before.trace.run, after.trace.run
    causes = []
    for difference, a, b in (
        ("framework differs", first.framework, second.framework),
        ("framework version differs", first.framework_version, second.framework_version),
        ("number of ranks differs", first.world_size, second.world_size),
        ("GPUs differ", before.side().gpus, after.side().gpus),
        ("hosts differ", _hosts(before), _hosts(after)),
    ):
        if a != b:
            causes.append(f"the {difference}: {a or 'unknown'} before, {b or 'unknown'} after")
    for knob in _other_work(before, after):
        a, b = before.view.knob(knob), after.view.knob(knob)
        a, b = ("unknown" if value is None else value for value in (a, b))
        causes.append(f"a step is not the same work: {knob} is {a} before, {b} after")
    causes += _tokens(before, after)
    for name, run in (("before", before), ("after", after)):
        if run.trace.run.exit.state not in ("finished", "running", "unknown"):
            causes.append(f"the run {name} {run.trace.run.exit.state}")
        if run.trace.loss.any:
            causes.append(f"the recording of the run {name} is incomplete")
        causes += _broken_steps(name, run)
    return causes


def _broken_steps(name: str, run: ComparedRun) -> list[str]:
    """Steps that ranks did not all end, ranks without any, and one that took as long as many."""
    broken, steps, seconds = [], run.analysis.steps, run.step_seconds
    open_steps = int((~steps.closed[:, steps.stepping].all(axis=1)).sum())
    if open_steps:
        broken.append(
            f"the run {name} has {open_steps} of {len(steps.numbers)} steps that did not end on "
            "all ranks; they are excluded"
        )
    silent = int((~steps.stepping).sum())
    if silent and steps.stepping.any():
        broken.append(f"the run {name} has no steps on {silent} of {len(steps.stepping)} ranks")
    usual = float(np.median(seconds)) if len(seconds) else 0.0
    if usual and seconds.max() > _LONG_STEP * usual:
        broken.append(
            f"one step of the run {name} took {seconds.max() / usual:.0f} times as long as usual: "
            "the machine paused, or its clock jumped; means depend on that step"
        )
    return broken


def _other_work(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Settings that make a step another piece of work: a batch cut otherwise is the same batch."""
    batches = before.batch, after.batch
    same_batch = batches[0] is not None and batches[0] == batches[1]
    names = ("rollout.num_generations",) if same_batch else (*_BATCH, "rollout.num_generations")
    return [name for name in names if before.view.knob(name) != after.view.knob(name)]


def _tokens(before: ComparedRun, after: ComparedRun) -> list[str]:
    tokens = before.step_tokens, after.step_tokens
    if tokens[0] is None or tokens[1] is None:
        return []
    ratio = float(tokens[1].mean() / tokens[0].mean())
    if abs(ratio - 1) <= _TOKENS_TOLERANCE:
        return []
    more = f"{abs(100 * (ratio - 1)):.0f}% {'more' if ratio > 1 else 'fewer'}"
    return [f"the run after generates {more} tokens per step: look at the time per token"]


def _hosts(run: ComparedRun) -> str:
    return ", ".join(sorted({process.host for process in run.trace.processes}))
