"""One rank scores while the others wait."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.stragglers import waited_in
from grpo_doctor.findings import signals
from grpo_doctor.findings.reward_functions import (
    FUNCTION_COUNTERS,
    ScorerImbalance,
    reward_seconds,
    scorer_imbalance,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import STACKS, percent
from grpo_doctor.findings.span_counts import slow_phases
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import AsOthers, Edit, Replay

RULE = timed_rule("reward", uses=(FUNCTION_COUNTERS, signals.COLLECTIVES), min_ranks=2)
_WAITS = "matched collectives"


def check(view: RunView) -> Answer:
    """Look for one rank with nearly all of the work in `reward`."""
    top = scorer_imbalance(view)
    if top is None:
        few = len(reward_seconds(view)) < 2
        return NotApplicable("one rank has steps" if few else "no rank spends time in `reward`")
    rank = top.rank
    if not top.counts:
        return Passed(
            f"the rank that scores longest has {percent(top.part)} of all scoring, "
            f"{percent(top.share, 1)} of the step more than any other"
        )
    late = None if top.alone else view.found("GD004")
    slow = slow_phases(view, rank) if late is not None else {}
    if late is not None and rank in late.ranks and "reward" in slow:
        return Passed(f"all ranks score, and rank {rank} is slow at it: see GD004")
    waits = np.delete(view.used_waited.sum(axis=2).mean(axis=0), top.column)
    waits_in = waited_in(view.used_waited, top.column)
    source = f"reward spans, mean of {len(view.analysis.step_seconds)} steps"
    return Finding(
        confidence=0.9,
        cost=top.share,
        phases=tuple(dict.fromkeys(("reward", *waits_in))),
        ranks=(rank,),
        evidence=(
            Evidence(f"rank {rank} in reward, per step", top.seconds, "s", source),
            Evidence("longest of the other ranks", top.others_s, "s", source),
            Evidence(f"rank {rank}'s share of all scoring", 100 * top.part, "%", source),
            Evidence("each other rank waits, per step", float(waits.mean()), "s", _WAITS),
        ),
        cause=f"Rank {rank} spends {top.seconds:.3g} s per step in reward, every other rank at "
        f"most {top.others_s:.2g} s"
        + (": it alone scores." if top.alone else ", though all of them call the functions."),
        fixes=(_fix(view, top),),
        headline=f"Rank {rank} {'alone scores' if top.alone else 'is slow at scoring'}"
        " while the others wait",
    )


def _fix(view: RunView, top: ScorerImbalance) -> Fix:
    rank = top.rank
    if top.alone:
        # The others' own part is at most what it was: an even share is the mean.
        even = float(reward_seconds(view).mean())
        scenario = f"with rank {rank}'s scoring spread over all ranks"
        change = Replay((Edit(("reward",), even / top.seconds, (rank,)),), scenario)
        text = "score each rank's own completions on that rank, and gather the scores"
        risk = "A function that compares completions of different ranks must stay on one rank."
        return view.advice(text, change, safety="needs-code", risk=risk)
    scenario = f"with rank {rank} scoring as fast as the median of the others"
    change = Replay((AsOthers(("reward",), rank),), scenario)
    text = (
        f"check what rank {rank} on {view.process_of(rank).host} does in its reward function that "
        f"other ranks don't: {STACKS}"
    )
    return view.advice(text, change, safety="needs-code", risk="First find the cause.")
