"""The reward functions of a run: what each took, and whether one rank scores for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.per_step import named_seconds
from grpo_doctor.analysis.sampled import values_in
from grpo_doctor.findings.span_counts import phase_windows, stepping_columns
from grpo_doctor.findings.view import MAX_HOST_CPU_PCT, RunView
from grpo_doctor.trace.intervals import together
from grpo_doctor.trace.model import Trace

# Spans within `reward` that are not reward functions.
OTHERS = ("log_completions", "decode", "gather", "advantages")
_PREFIX = "reward/"
# The seconds of each call of a function.
FUNCTION_COUNTERS = "reward/*_s"
SCORING_CPUS = ("host.cpu", "rank.cpu", "rank.cpu_wait")
# Of one core, with the time in which a rank and its workers wait for it: what uses less than half
# waits for a server or a program, and more of that fits on busy CPUs.
COMPUTES_PCT = 50.0


@dataclass(frozen=True, slots=True)
class Scoring:
    """One reward function: seconds per step, by rank.

    `seen_s` is what the rank waited for it after those before it, `own_s` what the function took
    itself, in whatever process; the same where only spans were recorded.
    """

    name: str
    seen_s: NDArray[np.float64]
    own_s: NDArray[np.float64]

    @property
    def span(self) -> str:
        """The name of its span."""
        return _PREFIX + self.name


def function_names(trace: Trace) -> list[str]:
    """Return the reward functions that have spans."""
    names = [n.removeprefix(_PREFIX) for n in trace.names if n.startswith(_PREFIX)]
    counters = {f"{name}_s" for name in names}
    return [n for n in names if n not in OTHERS and "/" not in n and n not in counters]


def functions(view: RunView) -> list[Scoring]:
    """Return all of them, the slowest first."""
    scorings = []
    for name in function_names(view.trace):
        in_spans = _waited(view, name)
        own = view.counted(f"{_PREFIX}{name}_s")
        own = np.where(np.isfinite(own), own, in_spans if not np.isfinite(own).any() else 0.0)
        if not in_spans.any() and not own.any():
            continue
        scorings.append(Scoring(name, in_spans.mean(axis=0), own.mean(axis=0)))
    return sorted(scorings, key=lambda f: (-typical(f.own_s), f.name))


def _waited(view: RunView, name: str) -> NDArray[np.float64]:
    """Seconds in `reward`, by step and rank, on any thread: TRL runs async functions on another."""
    return named_seconds(view.analysis, _PREFIX + name, waited_in="reward")


def typical(per_rank: NDArray[np.float64]) -> float:
    """The lower median over ranks: one rank that is slow, or alone, does not speak for all."""
    return float(np.sort(per_rank)[(len(per_rank) - 1) // 2]) if len(per_rank) else 0.0


def reward_seconds(view: RunView) -> NDArray[np.float64]:
    """Return each rank's own work in `reward` per step, shape (ranks,)."""
    view.must_time("reward")
    mean: NDArray[np.float64] = view.analysis.phase_work("reward").mean(axis=0)
    return mean


def busy_while_scoring(view: RunView) -> float | None:
    """Return how busy the host's CPUs are during `reward`, in percent, where they have no time for
    more processes; None where they have, the functions hardly use any, or nothing was sampled."""
    columns = stepping_columns(view)
    scoring = together([phase_windows(view, column, "reward") for column in columns])
    busy = view.highest_mean("host.cpu", scoring)
    own = [view.highest_mean(name, scoring) for name in ("rank.cpu", "rank.cpu_wait")]
    waits = None not in own and sum(mean or 0.0 for mean in own) < COMPUTES_PCT
    return busy if busy is not None and busy > MAX_HOST_CPU_PCT and not waits else None


def call_seconds(view: RunView, name: str) -> list[NDArray[np.float64]]:
    """Return seconds of each call, or each batch, of a function within the used steps; by rank."""
    inside = view.analysis.used_windows
    recorded = view.series(f"{_PREFIX}{name}_s")
    calls_by_rank = [values_in(series, inside) for series in recorded]
    if not calls_by_rank:
        calls_by_rank = list(_waited(view, name).T)
    return [calls[calls > 0] for calls in calls_by_rank if (calls > 0).any()]


# The rank's time in `reward` beyond any other rank's, as a share of the step.
MIN_SHARE = 0.05
# "Nearly all of the scoring": on two ranks 80% is four times the other's.
MIN_PART = 0.80
# Without spans of functions, ranks that only gather scores are told by what it takes: a rank that
# calls the same functions on a twentieth of the time would be twenty times as fast.
GATHERS_ONLY = 0.05


@dataclass(frozen=True, slots=True)
class ScorerImbalance:
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


def scorer_imbalance(view: RunView) -> ScorerImbalance | None:
    """Compare the ranks' own time in `reward`; None where fewer than two have steps or none."""
    work = reward_seconds(view)
    if len(work) < 2 or not work.sum() or not view.step_s:
        return None
    top = int(np.argmax(work))
    longest_other = float(np.delete(work, top).max())
    seconds = float(work[top])
    return ScorerImbalance(
        rank=view.model.ranks[top],
        column=top,
        seconds=seconds,
        others_s=longest_other,
        part=seconds / float(work.sum()),
        share=(seconds - longest_other) / view.step_s,
        alone=_alone(view, top, longest_other / seconds),
    )


def _alone(view: RunView, top: int, of_longest: float) -> bool:
    scorings = functions(view)
    if not scorings:
        return of_longest < GATHERS_ONLY
    return not any(np.delete(f.seen_s, top).any() for f in scorings)
