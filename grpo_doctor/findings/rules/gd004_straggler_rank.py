"""One rank is the straggler."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.learning.shape import error_of_mean
from grpo_doctor.analysis.stragglers import waited_in
from grpo_doctor.findings import signals
from grpo_doctor.findings.reward_functions import FUNCTION_COUNTERS, scorer_imbalance
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Passed
from grpo_doctor.findings.shared import STACKS, percent
from grpo_doctor.findings.span_counts import slow_phases
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import AsOthers, Prediction, Replay, WhatIf

RULE = timed_rule("system", signals.COLLECTIVES, uses=(FUNCTION_COUNTERS,), min_ranks=2)
# Ranks of one job differ by a few percent in any run; waiting below a twentieth is that.
MIN_WAIT_SHARE = 0.05
# "It is this rank" needs one rank to explain nearly all of it, and in most steps: one long step is
# not a slow rank.
MIN_EXPLAINED = 0.80
MIN_STEPS_SHARE = 0.50
# Where the others spread as well (lengths of completions), what one of them explains falls with
# their number; but of R equal ranks the same one is last in k steps with a chance of R^(1-k).
MIN_ALWAYS_SHARE, MIN_ALWAYS_EXPLAINED, ALWAYS_NEEDS_STEPS = 0.90, 0.25, 6
# A rank that is slow takes longer by three standard errors of the steps' mean: of healthy runs of 8
# to 40 steps on two busy cores none had more than 2.4, though one rank explained 85% of the waits.
MIN_ERRORS = 3.0
# What is slow here is the user's own Python: its stack says more than the GPU's state.
PYTHON_PHASES = ("dataload", "reward")
_RISK = "First find the cause: a slow GPU, busy cores, or more work than the other ranks."


def check(view: RunView) -> Answer:
    """Look for one rank that explains the others' waiting."""
    blame = view.blame
    column = int(np.argmax(blame.explained_s))
    rank = view.analysis.ranks[column]
    # Of the time of the ranks that could be waiting for one other, over all used steps.
    others_s = len(view.analysis.step_seconds) * view.step_s * max(1, len(view.model.ranks) - 1)
    share = float(blame.explained_s[column]) / others_s
    explained, often = float(blame.shares[column]), float(blame.late_share[column])
    nearly_all = explained >= MIN_EXPLAINED and often >= MIN_STEPS_SHARE
    always = not nearly_all and _always_last(view, rank, explained, often)
    if share < MIN_WAIT_SHARE or not (nearly_all or always):
        rank_steps = len(view.analysis.step_seconds) * len(view.model.ranks)
        waited = blame.waited_s / rank_steps / view.step_s
        return Passed(
            f"ranks wait {percent(waited, 1)} of the step for each other, as far as waits block "
            f"the host; {percent(explained)} of it is for rank {rank}, "
            f"in {percent(often)} of the steps"
        )
    phases = slow_phases(view, rank)
    at = view.model.ranks.index(rank)
    change, cost = change_of(view), share
    if isinstance(view.gain(change), Prediction):  # others may wait for more than its own work
        cost = min(share, max(0.0, view.gained(change)))
    if view.now("vllm.mode") == "server" and next(iter(phases), None) == "rollout":
        return Passed(f"the server answers rank {rank} last: its queue decides that, not the rank")
    scorer = scorer_imbalance(view) if tuple(phases) == ("reward",) else None
    if scorer is not None and scorer.counts and scorer.alone and scorer.rank == rank:
        return Passed(f"rank {rank} alone scores and the others wait for it: see GD035")
    if phases and not _steady(view, rank):
        return Passed(
            f"ranks wait mostly for rank {rank}, {percent(share, 1)} of the step, but its own "
            f"work is not consistently longer: over more steps that would even out"
        )
    late = "every step" if often >= 0.995 else f"{percent(often)} of the steps"
    excess = ", ".join(f"{phase} +{seconds:.3g} s" for phase, seconds in phases.items())
    return Finding(
        confidence=0.9 if nearly_all else 0.8,
        cost=cost,
        phases=tuple(dict.fromkeys((*phases, *waited_in(view.used_waited, at)))),
        ranks=(rank,),
        evidence=_evidence(view, column, phases),
        cause=f"Rank {rank} (host {view.process_of(rank).host}) causes {percent(explained)} of all "
        f"wait time and is late in {late}; "
        + (f"its extra time per step: {excess}." if excess else "its phases do not show why."),
        fixes=(view.advice(_where_to_look(view, rank, phases), change, risk=_RISK),),
        headline=f"Rank {rank} is slow in {' and '.join(phases)}"
        if phases
        else f"Rank {rank} is the straggler",
    )


def change_of(view: RunView) -> WhatIf:
    """Return the late rank's slower phases at the median of the others, in each step."""
    rank = view.analysis.ranks[int(np.argmax(view.blame.explained_s))]
    phases = slow_phases(view, rank)
    if not phases:
        return "which phase of this rank is slower is unknown"
    scenario = f"with rank {rank} as fast as the median of the others"
    return Replay((AsOthers(tuple(phases), rank),), scenario)


def _evidence(view: RunView, column: int, phases: dict[str, float]) -> tuple[Evidence, ...]:
    blame, steps = view.blame, len(view.analysis.step_seconds)
    rank, ranks = view.analysis.ranks[column], len(view.model.ranks)
    wait_s = float(blame.explained_s[column]) / steps / (ranks - 1)
    source = f"collectives matched over {ranks} ranks, {steps} steps"
    spans = f"phase spans, rank {rank} less the median of the others"
    part, late = 100 * float(blame.shares[column]), 100 * float(blame.late_share[column])
    text = f"time each other rank waits for rank {rank}, per step, in all phases"
    mean, mean_s = (
        "the same, averaged over all ranks, as in the step bar",
        wait_s * (ranks - 1) / ranks,
    )
    return (
        Evidence(text, wait_s, "s", source),
        Evidence(mean, mean_s, "s", source),
        Evidence(f"share of wait time caused by rank {rank}", part, "%", source),
        Evidence(f"steps in which rank {rank} is late", late, "%", source),
        *(
            Evidence(f"rank {rank} longer in {phase}, per step", seconds, "s", spans)
            for phase, seconds in phases.items()
        ),
    )


def _always_last(view: RunView, rank: int, explained: float, often: float) -> bool:
    """Whether one rank is last in as good as every step, though the others spread as well."""
    enough = len(view.analysis.step_seconds) >= ALWAYS_NEEDS_STEPS
    late = explained >= MIN_ALWAYS_EXPLAINED and often >= MIN_ALWAYS_SHARE
    return enough and late and _steady(view, rank)


def _steady(view: RunView, rank: int) -> bool:
    """Return whether its own work exceeds the median of the others' by more than steps differ."""
    work = view.analysis.used_own_work.sum(axis=2)
    column = view.model.ranks.index(rank)
    longer = work[:, column] - np.median(np.delete(work, column, axis=1), axis=1)
    return bool(longer.mean() >= MIN_ERRORS * error_of_mean(longer))


def _where_to_look(view: RunView, rank: int, phases: dict[str, float]) -> str:
    host = view.process_of(rank).host
    slowest = next(iter(phases), None)
    if slowest in PYTHON_PHASES:
        return (
            f"check what rank {rank} (host {host}) does in {slowest} that other ranks don't: "
            f"{STACKS}"
        )
    uuid = view.gpu_of_rank.get(rank)
    if uuid:
        return (
            f"check the GPU of rank {rank} on {host}: "
            f"`nvidia-smi -i {uuid} -q -d PERFORMANCE,CLOCK,TEMPERATURE`"
        )
    return (
        f"look at rank {rank} on {host} next to another rank: programs on its cores (top), its "
        f"share of the data"
    )
