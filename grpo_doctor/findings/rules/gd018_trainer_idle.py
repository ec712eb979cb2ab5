"""The trainer is idle while the rollout server works.

## What it means

vLLM runs as a server on devices of its own, and the ranks wait most of the step for completions.

## Why it costs

The trainer's GPUs, usually the larger part of the job, hold weights and wait for tokens.

## Evidence shown

Which shares of the step both sides work, what could overlap, and how busy the GPUs were.

## Fix

Roll out the next batch while this one is trained on (`rollout.async`); or move GPUs to the server;
or share them (`vllm.mode colocate` with sleep). In the prediction the longer side decides.

## When it is wrong

Moving GPUs to the server helps only while it decodes more than a few requests per GPU: the longest
completion alone sets a floor that no number of GPUs moves.

## References

- https://verl.readthedocs.io/en/latest/advance/one_step_off.html
- https://huggingface.co/docs/trl/main/en/vllm_integration
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN
from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import MIN_OVERLAP, idle_side, sides
from grpo_doctor.findings.rule import Answer, Evidence, NotApplicable, Passed
from grpo_doctor.findings.severity import percent
from grpo_doctor.findings.span_counts import gpu_means
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule(__name__, __doc__, "rollout", signals.SETTINGS, uses=("gpu.util",))
# A GPU that does nothing but hold memory and keep an NCCL connection alive shows less than this.
IDLE_UTIL_PCT = 20.0


def check(view: RunView) -> Answer:
    """Compares the two sides where the engine's is the longer one."""
    if ROLLOUT_WAIT_SPAN in view.trace.names:
        return NotApplicable("rollout and training run side by side already: see GD027")
    shares = sides(view)
    if shares is None:
        return NotApplicable("the rollout engine is not a server of its own")
    if shares.engine <= shares.trainer:
        return Passed(f"the trainer works {percent(shares.trainer)} of the step")
    # However long the rollout: what more engines or colocation could give back is all of the wait.
    if shares.engine < 2 * MIN_OVERLAP:
        return Passed(f"the trainer waits {percent(shares.engine)} of the step for completions")
    # Mean utilization of the ranks' own GPUs during rollouts; None where it was not sampled.
    means = [mean for mean, _ in gpu_means(view, "gpu.util", "rollout")]
    busy = round(float(np.mean(means)), 1) if means else None
    return idle_side(
        view,
        shares,
        shares.engine,
        f"The ranks wait {percent(shares.engine)} of each step for the server's completions "
        f"and work {percent(shares.trainer)} of it.",
        or_else="move GPUs from the trainer to the server",
        proven=busy is not None and busy < IDLE_UTIL_PCT,
        more=()
        if busy is None
        else (Evidence("trainer's GPUs in rollout", busy, "%", "gpu.util"),),
    )
