"""Padding left out of the passes: by packing, or by putting completions of like length together."""

from __future__ import annotations

from grpo_doctor.whatif.laws.batch import PLACES, TOKENS, padding_changes
from grpo_doctor.whatif.laws.law import NOTHING, Case, Effect, Law, UnsupportedError


def _padding_free(case: Case) -> Effect:
    if case.after["train.padding_free"] is not True:
        raise UnsupportedError("how much padding there would be was not recorded")
    return padding_changes(case, tokens_share(case))


def _by_length(case: Case) -> Effect:
    if case.after["train.group_by_length"] is not True:
        raise UnsupportedError("how much padding there would be was not recorded")
    share, passes = tokens_share(case), case.knob("train.grad_accumulation")
    if not passes or passes == 1:
        return NOTHING
    # Of sorted lengths each of n passes spans an n-th of the range, and pads within it only.
    return padding_changes(case, share + (1 - share) / passes)


def tokens_share(case: Case) -> float:
    """Which share of the passes' places holds tokens."""
    tokens, places = case.per_step(TOKENS), case.per_step(PLACES)
    if not tokens or not places:
        raise UnsupportedError("how many of the trained places are padding was not recorded")
    return min(1.0, tokens / places)


LAWS = (
    Law("no padding", ("train.padding_free",), _padding_free),
    Law("completions by length", ("train.group_by_length",), _by_length),
)
