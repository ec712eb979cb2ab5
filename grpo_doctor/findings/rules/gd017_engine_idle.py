"""The rollout server is idle while the trainer works.

## What it means

vLLM runs as a server on devices of its own, and for most of the step nobody asks it for anything.

## Why it costs

The server's GPUs are paid for throughout. Between rollouts they hold weights and an empty cache.

## Evidence shown

Which shares of the step the engine and the trainer work, and how much of the two could overlap.

## Fix

Roll out the next batch while this one is trained on (`rollout.async`); or let vLLM share the
trainer's GPUs (`vllm.mode colocate` with sleep). In the prediction the longer side decides.

## When it is wrong

A server that other jobs use as well is not idle. Overlapping trains on completions of slightly
older weights; on jobs in which one side takes nearly all of the time it gains nothing, and has been
seen to lose.

## References

- https://verl.readthedocs.io/en/latest/advance/one_step_off.html
- https://huggingface.co/blog/vllm-colocate
"""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rollout_engine import MIN_OVERLAP, idle_side, sides
from grpo_doctor.findings.rule import Answer, NotApplicable, Passed
from grpo_doctor.findings.severity import percent
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule(__name__, __doc__, "rollout", signals.SETTINGS)


def check(view: RunView) -> Answer:
    """Compares the two sides where the trainer's is the longer one."""
    shares = sides(view)
    if shares is None:
        return NotApplicable("the rollout engine is not a server of its own")
    if shares.trainer < shares.engine:
        return Passed(f"the engine works {percent(shares.engine)} of the step")
    if shares.overlap < MIN_OVERLAP:
        return Passed(f"at most {percent(shares.overlap)} of the step could overlap")
    return idle_side(
        view,
        shares,
        shares.overlap,
        f"The server works {percent(shares.engine)} of each step and waits while the trainer "
        f"works {percent(shares.trainer)} of it.",
        or_else="let vLLM share the trainer's GPUs instead of having its own",
        proven=False,  # what overlapping brings differs in sign by job
    )
