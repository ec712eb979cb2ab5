"""Whether two runs can be compared at all, and what to keep in mind if so."""

from __future__ import annotations

from grpo_doctor.compare.run import ComparedRun

# Batches that differ by more than this do different work per step.
_TOKENS_TOLERANCE = 0.10


def obstacles(before: ComparedRun, after: ComparedRun) -> list[str]:
    """Reasons why their step times can't be compared; none where they can."""
    found = []
    for which, run in (("before", before), ("after", after)):
        if not len(run.analysis.steps.numbers):
            found.append(f"the run {which} has no steps: record it with `grpo-doctor run`")
        elif not len(run.step_seconds):
            found.append(f"the run {which} has no step that ended on all ranks")
    return found


def cautions(before: ComparedRun, after: ComparedRun) -> list[str]:
    """What else differs, and so may be the reason of a difference."""
    first, second = before.trace.run, after.trace.run
    found = []
    for what, a, b in (
        ("framework", first.framework, second.framework),
        ("framework version", first.framework_version, second.framework_version),
        ("number of ranks", first.world_size, second.world_size),
        ("GPUs", before.side()["gpus"], after.side()["gpus"]),
        ("hosts", _hosts(before), _hosts(after)),
    ):
        if a != b:
            found.append(f"the {what} differs: {a or 'unknown'} before, {b or 'unknown'} after")
    for knob in ("train.micro_batch", "train.grad_accumulation", "rollout.num_generations"):
        a, b = before.view.knob(knob), after.view.knob(knob)
        if a != b:
            found.append(f"a step is not the same work: {knob} is {a} before, {b} after")
    found += _tokens(before, after)
    for which, run in (("before", before), ("after", after)):
        if run.trace.run.exit.state not in ("finished", "running", "unknown"):
            found.append(f"the run {which} {run.trace.run.exit.state}")
        if run.trace.loss.any:
            found.append(f"the recording of the run {which} is not whole")
    return found


def _tokens(before: ComparedRun, after: ComparedRun) -> list[str]:
    tokens = before.step_tokens, after.step_tokens
    if tokens[0] is None or tokens[1] is None:
        return []
    ratio = float(tokens[1].mean() / tokens[0].mean())
    if abs(ratio - 1) <= _TOKENS_TOLERANCE:
        return []
    more = f"{abs(100 * (ratio - 1)):.0f} % {'more' if ratio > 1 else 'fewer'}"
    return [f"the run after generates {more} tokens per step: look at the time per token"]


def _hosts(run: ComparedRun) -> str:
    return ", ".join(sorted({process.host for process in run.trace.processes}))
