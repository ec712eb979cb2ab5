"""The rank that scores longest, and whether it does so for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.findings.rewarding import functions, reward_seconds
from grpo_doctor.findings.view import RunView

# The rank's time in `reward` beyond any other rank's, as a share of the step.
MIN_SHARE = 0.05
# "Nearly all of the scoring": on two ranks 80 % is four times the other's.
MIN_PART = 0.80
# Without spans of functions, ranks that only gather scores are told by what it takes: a rank that
# calls the same functions on a twentieth of the time would be twenty times as fast.
GATHERS_ONLY = 0.05


@dataclass(frozen=True, slots=True)
class OneScorer:
    """Seconds in `reward` per step of the rank that takes longest, and of the longest other one.

    `part` is this rank's of all scoring, `share` its excess as a share of the step, and `alone`
    whether no other rank calls the functions.
    """

    rank: int
    column: int
    seconds: float
    others_s: float
    part: float
    share: float
    alone: bool

    @property
    def counts(self) -> bool:
        """Whether it is one rank that scores while the others wait."""
        return self.part >= MIN_PART and self.share >= MIN_SHARE


def one_scorer(view: RunView) -> OneScorer | None:
    """Compares the ranks' own time in `reward`; None where fewer than two have steps or none."""
    work = reward_seconds(view)
    if len(work) < 2 or not work.sum() or not view.step_s:
        return None
    top = int(np.argmax(work))
    others = float(np.delete(work, top).max())
    seconds = float(work[top])
    return OneScorer(
        rank=view.model.ranks[top],
        column=top,
        seconds=seconds,
        others_s=others,
        part=seconds / float(work.sum()),
        share=(seconds - others) / view.step_s,
        alone=_alone(view, top, others / seconds),
    )


def _alone(view: RunView, top: int, of_longest: float) -> bool:
    found = functions(view)
    if not found:
        return of_longest < GATHERS_ONLY
    return not any(np.delete(f.seen_s, top).any() for f in found)
