"""One side of an asynchronous run waits for the other."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN
from grpo_doctor.findings.rule import (
    Answer,
    Evidence,
    Finding,
    NotApplicable,
    Passed,
    Safety,
    scaled,
)
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.sides import (
    GENERATE_SPAN,
    METRICS,
    MIN_SHARE,
    QUEUE_SPAN,
    REWARD_SPAN,
    TOOLS_SPAN,
    Sides,
    best_split,
    evidence_of,
    loop_shares,
    queue_evidence,
    queued_of_requests,
    sides_of,
    slowest_part,
    tools_of_trajectories,
)
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import WhatIf

RULE = timed_rule("rollout", uses=METRICS)
# A reward that runs for most of the time is what samples wait for, however much of the time
# something is generated too: it comes after that.
_MOST = 0.8
# With so much of their time in its queue requests wait for places, not for their first pass.
MIN_QUEUED = 0.3
_TOOLS = "a trajectory's time in tools"
_DROPS = "how many samples would be in time was not measured"
_WITHHELD = "how much faster that makes the rollout was not measured"


def check(view: RunView) -> Answer:
    """Compare what each side waits for the other, in shares of the step."""
    if not {ROLLOUT_WAIT_SPAN, QUEUE_SPAN} & set(view.trace.names):
        return NotApplicable(f"neither `{ROLLOUT_WAIT_SPAN}` nor `{QUEUE_SPAN}` was recorded")
    sides = sides_of(view)
    if max(sides.trainer_waits, sides.surplus) < MIN_SHARE:
        return Passed(f"the ranks wait {percent(sides.trainer_waits, 1)} of the step for samples")
    if sides.trainer_waits >= sides.surplus:
        return _starved_trainer(view, sides)
    return _idle_rollout(view, sides)


def _starved_trainer(view: RunView, sides: Sides) -> Finding:
    share = sides.trainer_waits
    busy = loop_shares(view, (GENERATE_SPAN, REWARD_SPAN, TOOLS_SPAN))
    in_tools = tools_of_trajectories(view)
    faster = 1 / (1 - share) if share < 1 else None
    text, change = _what_to_do(view, sides, busy, in_tools)
    safety: Safety = "changes-algorithm" if change == _DROPS else "same-math"
    risk = "With fewer GPUs, a training step takes longer and sharded state more memory of each."
    return Finding(
        confidence=0.9,
        cost=share,
        phases=("rollout",),
        evidence=(
            Evidence("waiting for samples, per step", share * view.step_s, "s", _WAITS),
            Evidence("of the step", 100 * share, "%", _WAITS),
            *(
                Evidence(f"rollout loop in {name}", 100 * part, "%", "spans of the rollout loop")
                for name, part in busy.items()
            ),
            Evidence(_TOOLS, scaled(in_tools, 100), "%", "trajectories or metrics"),
            queue_evidence(view),
            *evidence_of(view, sides),
        ),
        cause=f"The training ranks wait {percent(share)} of each step for samples"
        + (f"; the rollout must be {faster:.2g} times as fast to keep up." if faster else "."),
        fixes=(view.advice(text, change, safety=safety, risk=risk),),
    )


def _idle_rollout(view: RunView, sides: Sides) -> Finding:
    """Return the step would be shorter by what the rollout's GPUs could do of it."""
    train, generate = sides.gpus or (1, 1)
    cost = sides.surplus * generate / (train + generate)
    text, change = _move(view, sides, "the rollout engine", "training")
    risk = "With fewer GPUs, each batch of samples takes longer."
    parts = []
    if sides.rollout_waits:
        parts.append(f"waits {percent(sides.rollout_waits)} of the time for room in the queue")
    if sides.unused:
        parts.append(f"generates {percent(sides.unused)} in vain")
    return Finding(
        confidence=0.8,
        cost=cost,
        phases=("rollout",),
        evidence=(
            *evidence_of(view, sides),
            Evidence("ranks wait for samples", 100 * sides.trainer_waits, "%", _WAITS),
        ),
        cause=f"The rollout {' and '.join(parts)}: training is the slower side.",
        fixes=(view.advice(text, change, risk=risk),),
    )


_WAITS = f"{ROLLOUT_WAIT_SPAN} spans"


def _what_to_do(
    view: RunView, sides: Sides, busy: Mapping[str, float], in_tools: float | None
) -> tuple[str, WhatIf]:
    generating = busy.get(GENERATE_SPAN, 0.0)
    reward, tools = busy.get(REWARD_SPAN, 0.0), busy.get(TOOLS_SPAN, 0.0)
    if reward >= _MOST or reward > max(generating, tools):
        return (
            f"make {_detailed(view, 'the reward', REWARD_SPAN)} faster, or score more samples at "
            f"once: it runs for {percent(reward)} of the time"
        ), _WITHHELD
    if tools > generating if in_tools is None else in_tools > 1 - in_tools:
        reason = (
            "they take more of the rollout loop's time than generation"
            if in_tools is None
            else f"{percent(in_tools)} of a trajectory's time is in tools"
        )
        return (
            f"make {_detailed(view, 'the tools', TOOLS_SPAN)} faster, or let more trajectories run "
            f"at once: {reason}"
        ), _WITHHELD
    move, change = _move(view, sides, "training", "the rollout engine")
    if (sides.unused or 0.0) >= MIN_SHARE:
        return (
            "let samples be older before they are dropped (TRL: max_staleness), or fewer requests "
            f"run at once: {percent(sides.unused or 0.0)} of them are not trained on; else {move}"
        ), _DROPS
    queued = queued_of_requests(view)
    if queued is None or queued < MIN_QUEUED:
        return move, change
    return (
        "let the engine run more requests at once while its cache has room (max_num_seqs): they "
        f"wait {percent(queued)} of their time in its queue; else {move}"
    ), _WITHHELD


def _detailed(view: RunView, text: str, parent: str) -> str:
    name = slowest_part(view, parent)
    return f"{text} (most of it {name})" if name else text


def _move(view: RunView, sides: Sides, giver: str, taker: str) -> tuple[str, WhatIf]:
    split = best_split(view, sides)
    if isinstance(split, str):
        if "no other" in split:
            return f"add GPUs to {taker}: {split}", split
        return f"move GPUs from {giver} to {taker}, one at a time, until neither side waits", split
    moved, of, change = split
    return f"move {moved} of the {of} GPUs of {giver} to {taker}", change
