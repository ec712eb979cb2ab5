"""Training waits for an asynchronous rollout.

## What it means

Rollout and training run side by side, and the ranks that train find no samples: generation is the
slower side.

## Why it costs

The trainer's GPUs hold weights and wait. The step is as long as the rollout needs for its samples,
whatever the trainer does.

## Evidence shown

How long the ranks wait for samples per step, how much faster the rollout must get until they do
not, and what takes the rollout loop's own time, where it was recorded: generating, tools, rewards.

## Fix

Move GPUs from training to the rollout engine until neither waits. Where rewards or tools take most
of the loop's time, make those faster first. Nothing is predicted: how both sides scale with their
GPUs was not measured.

## When it is wrong

A queue that is filled only after each weight update waits by design.

## References

- https://huggingface.co/docs/trl/main/en/async_grpo_trainer
- https://verl.readthedocs.io/en/latest/advance/fully_async.html
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN
from grpo_doctor.analysis.intervals import intersect, union
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import (
    Answer,
    Evidence,
    Finding,
    NotApplicable,
    Passed,
    Rule,
    severity_of,
)
from grpo_doctor.findings.view import RunView
from grpo_doctor.findings.wording import percent
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import Edit, Withheld

RULE = Rule(
    id="GD027",
    slug="starved-trainer",
    title="Training waits for an asynchronous rollout",
    family="rollout",
    needs=(signals.STEPS, signals.PHASES),
)
# Below it moving a whole GPU would only move the wait to the other side.
MIN_SHARE = 0.1
# What the rollout loop does beside generating, and what to do where it takes most of the time.
_BESIDE = {"reward": "the reward", "rollout/tools": "the tools"}


def check(view: RunView) -> Answer:
    """Compares the trainer's wait for samples with the step."""
    if ROLLOUT_WAIT_SPAN not in view.trace.names:
        return NotApplicable("rollout and training do not run side by side, or were not seen to")
    waits = view.span_seconds(ROLLOUT_WAIT_SPAN)
    share = waits / view.step_s
    if share < MIN_SHARE:
        return Passed(
            f"the ranks wait {percent(share, 1)} of the step for samples: training is the slower "
            "side, or both are alike"
        )
    busy = _rollout_shares(view)
    faster = 1 / (1 - share) if share < 1 else None
    return Finding(
        severity=severity_of(share),
        confidence=0.9,
        cost=share,
        phases=("rollout",),
        ranks=(),
        evidence=(
            Evidence("waiting for samples, per step", waits, "s", f"{ROLLOUT_WAIT_SPAN} spans"),
            Evidence("of the step", 100 * share, "%", f"{ROLLOUT_WAIT_SPAN} spans"),
            *(
                Evidence(f"rollout loop in {name}", 100 * part, "%", "spans of the rollout loop")
                for name, part in busy.items()
            ),
        ),
        cause=f"The ranks that train wait {percent(share)} of each step for samples"
        + (f"; generation must get {faster:.2g} times as fast to keep up." if faster else "."),
        fixes=(
            view.advice(
                _what_to_do(busy),
                Withheld("how both sides scale with their GPUs was not measured"),
                safety="same-math",
                risk="Fewer GPUs for training take longer for each step of it.",
            ),
        ),
    )


def counterfactual(view: RunView) -> tuple[Edit, ...]:
    """None: the other side's speed with more GPUs is unknown."""
    del view
    return ()


def _what_to_do(busy: dict[str, float]) -> str:
    beside = max(_BESIDE, key=lambda name: busy.get(name, 0.0))
    if busy.get(beside, 0.0) > busy.get("rollout/generate", 0.0):
        return (
            f"make {_BESIDE[beside]} faster, or run more of it at once: it takes more of the "
            "rollout loop's time than generating"
        )
    return "move GPUs from training to the rollout engine, one at a time, until neither side waits"


def _rollout_shares(view: RunView) -> dict[str, float]:
    """What part of the steps' time something of a kind was going on in rollout loops, by span."""
    spans, names = view.trace.spans, view.trace.names
    loops = [p.index for p in view.trace.processes if p.role == "rollout"]
    windows = view.analysis.used_windows
    shares = {}
    for name in ("rollout/generate", *_BESIDE):
        if not loops or name not in names or not windows.total_ns:
            continue
        chosen = np.isin(spans.process, loops) & (spans.kind == Kind.SPAN)
        rows = np.flatnonzero(chosen & (spans.name == names.index(name)))
        inside = intersect(union(spans.start_ns[rows], spans.end_ns[rows]), windows)
        shares[name] = inside.total_ns / (windows.total_ns * len(loops))
    return {name: part for name, part in shares.items() if part > 0}
