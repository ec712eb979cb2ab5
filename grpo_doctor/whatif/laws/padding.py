"""Padding left out of the passes: by packing, or by putting completions of like length together."""

from __future__ import annotations

from grpo_doctor.whatif.laws.batch import PLACES, TOKENS, padding_changes
from grpo_doctor.whatif.laws.law import NOTHING, Case, Effect, Law, UnsupportedError

_FREE = "train.padding_free"


def _padding(case: Case) -> Effect:
    if any(value is not True for value in case.after.values()):
        raise UnsupportedError("how much padding there would be was not recorded")
    # Packed passes have no padding, in whatever order their completions come.
    if case.knob(_FREE) is True:
        return NOTHING
    return padding_changes(case, tokens_share(case)) if case.changed(_FREE) else _by_length(case)


def _by_length(case: Case) -> Effect:
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


LAWS = (Law("no padding", (_FREE, "train.group_by_length"), _padding),)
