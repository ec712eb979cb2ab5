"""Shorter completions, and rollouts during training instead of before it."""

from __future__ import annotations

import numpy as np

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.models.engine import GENERATE, rollout_lengths
from grpo_doctor.whatif.models.passes import PLACES, fit, measured_passes
from grpo_doctor.whatif.prediction import Spread
from grpo_doctor.whatif.step_model import Change, Edit, Overlap

_LENGTH = "rollout.max_completion_length"
_ERROR = 0.15
_ASYNC_ERROR = 0.15
_PASSES = ("train", "logprob")
GENERATING = ("sync", "offload", "rollout", "reward")
TRAINING = ("logprob", "train", "optimizer")


def _shorter(case: Case) -> Effect:
    before, after = case.before.get(_LENGTH), case.after[_LENGTH]
    if not after:
        raise UnsupportedError("a completion has at least one token")
    longest = case.metric("completions/max_length")
    if not len(longest):
        raise UnsupportedError("how long the longest completions are was not recorded")
    now = float(longest.mean())
    if after >= now:
        if before is not None and now >= before and after > before:
            raise UnsupportedError("the full length of truncated completions is unknown")
        return NOTHING
    part = GENERATE if case.work_s(GENERATE) else "rollout"
    lengths = rollout_lengths(case)
    tokens = 1.0 if lengths is None else float(np.minimum(lengths, after).sum() / lengths.sum())
    # A rollout takes as many passes as its longest completion has tokens.
    generate = Edit((part,), after / now)
    shares = _train_shares(case, now, after)
    changes: tuple[Change, ...] = (generate,)
    spreads: tuple[Spread, ...] = ()
    smallest = after / now
    if shares is not None:
        shy, changes, bold = ((generate, Edit(_PASSES, share)) for share in shares)
        spreads, smallest = (Spread(changes, shy, bold),), min(shares[1], smallest)
    return Effect(
        changes,
        f"a rollout of {after} instead of {now:.0f} passes, with {100 * tokens:.0f}% of the "
        "tokens; rewards stay as long",
        _ERROR,
        at_most=(generate, Edit(_PASSES, smallest)),
        spreads=spreads,
    )


def _train_shares(case: Case, now: float, after: float) -> tuple[float, float, float] | None:
    """Return what passes with so much shorter completions take of their time; None where unknown.

    The middle lies between the ends of what a fit of this run's passes leaves open.
    """
    per_pass, size = case.values(PLACES), case.knob("train.micro_batch")
    if not len(per_pass) or not size:
        return None
    width = float(per_pass.mean()) / float(size)
    # Prompts stay: a pass shrinks by no more than its completions do.
    share = max((width - now + after) / width, after / now)
    line = fit(measured_passes(case.analysis))
    if line is None:
        return ((1 + share) / 2,) * 3
    return line.shares_of_narrower(share)


def _async(case: Case) -> Effect:
    if case.after["rollout.async"] is not True:
        raise UnsupportedError(
            "how long an overlapping run would take without overlap was not measured"
        )
    if case.knob("vllm.mode") == "colocate":
        raise UnsupportedError(
            "rollout and training share their GPUs; their speed on a part of the GPUs was not "
            "measured"
        )
    return Effect(
        (Overlap(GENERATING, TRAINING),),
        "each side takes as long as now, and completions of older weights are acceptable",
        _ASYNC_ERROR,
    )


MODELS = (
    CostModel("shorter completions", (_LENGTH,), _shorter),
    CostModel("asynchronous rollouts", ("rollout.async",), _async),
)
