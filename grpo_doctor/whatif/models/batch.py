"""Micro-batches: what each pass costs besides its tokens, fitted to this run's own passes.

seconds of a pass = a + b * places, where places are tokens and padding. Where all passes of a run
are of one size the two can't be told apart, and the model says so. What a fit leaves open is told
by leaving out each step in turn: in simulated runs its interval holds nine in ten times. Log-probs
are computed in passes of the same size, so they change with them. Padding that is left out takes
places away. It is left out by packing, or by putting completions of like length together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.intervals import Rows, innermost
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.sampled import series_named, value_at
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.whatif.edits import Change, Edit
from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.prediction import Spread
from grpo_doctor.whatif.small_samples import AT_95, student

PASS, PLACES, TOKENS = "train/micro_batch", "train/token_places", "train/tokens"
# transformers' trainers have a span of the whole phase for each micro-batch, the rollout inside.
_WHOLE = "train"
_BATCH, _PASSES = "train.micro_batch", "train.grad_accumulation"
_FREE = "train.padding_free"
_ERROR = 0.20
# Passes up to so much larger or smaller than those measured: caches and kernels change beyond.
_MOST_GROWTH = 8
_LEAST_PASSES = 12
_LEAST_SPREAD = 0.03
_LEAST_STEPS = 3
# A pass that took so many times the usual deviation longer than its places say was late; of passes
# that all take the same, one that took so much longer.
_FAR, _EVEN = 5.0, 0.01
# A line through late passes may cross zero: no pass is expected to take less of the mean than this.
_LEAST_SHARE = 0.1
_MAD = 1.4826
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward and backward passes of the used steps: seconds, places, step; shape (passes,)."""

    seconds: NDArray[np.float64]
    places: NDArray[np.float64]
    step: Rows


@dataclass(frozen=True, slots=True)
class Fit:
    """seconds = fixed + slope * places, through the mean pass, which has `places`.

    `fixed_low` and `fixed_high` hold the fixed part nine times in ten.
    """

    fixed: float
    slope: float
    fixed_low: float
    fixed_high: float
    places: float

    @property
    def seconds(self) -> float:
        """Of the mean pass."""
        return self.fixed + self.slope * self.places


def measured_passes(analysis: Analysis) -> Passes:
    """The recorded passes of all ranks' main threads, with the places counted for each."""
    trace, spans = analysis.trace, analysis.trace.spans
    name = _pass_of(analysis)
    counters = {s.rank: s for s in series_named(trace, PLACES)}
    seconds, places, steps = [np.empty(0)], [np.empty(0)], [np.empty(0, dtype=np.intp)]
    for column, main in enumerate(analysis.mains):
        series = counters.get(main.rank)
        rows = main.rows[_named(trace, main.rows, name) & (spans.kind[main.rows] == Kind.SPAN)]
        if series is None or not len(rows):
            continue
        step = analysis.steps.of(np.full(len(rows), column), spans.start_ns[rows], used=True)
        rows, step = rows[step >= 0], step[step >= 0]
        if name == PASS:
            counted = value_at(series, spans.start_ns[rows])
            taken = (spans.end_ns[rows] - spans.start_ns[rows]) / 1e9
        else:  # the first of them generates what is then counted
            counted = value_at(series, spans.end_ns[rows])
            taken = _without_other_phases(analysis, column, rows)
        known = np.isfinite(counted)
        seconds.append(taken[known])
        places.append(counted[known])
        steps.append(step[known])
    return Passes(np.concatenate(seconds), np.concatenate(places), np.concatenate(steps))


def _pass_of(analysis: Analysis) -> str:
    """What a pass is recorded as, and so the part of a step that becomes longer or shorter."""
    return PASS if PASS in analysis.trace.names else _WHOLE


def _named(trace: Trace, rows: Rows, name: str) -> NDArray[np.bool_]:
    code = trace.names.index(name) if name in trace.names else -1
    return np.asarray(trace.spans.name[rows] == code)


def _without_other_phases(analysis: Analysis, column: int, passes: Rows) -> NDArray[np.float64]:
    """Seconds of training in each pass: a framework may generate completions within its first."""
    spans, main = analysis.trace.spans, analysis.mains[column]
    kept = (spans.kind[main.rows] == Kind.SPAN) & (main.phase >= 0)
    rows, phase = main.rows[kept], main.phase[kept]
    pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
    training = phase[owner] == CODES["train"]
    start_ns, end_ns = pieces.start_ns[training], pieces.end_ns[training]
    order = np.argsort(spans.start_ns[passes])
    number = np.searchsorted(spans.start_ns[passes][order], start_ns, side="right") - 1
    within = (number >= 0) & (end_ns <= spans.end_ns[passes][order][number])
    taken = np.zeros(len(passes))
    np.add.at(taken, order[number[within]], (end_ns - start_ns)[within] / 1e9)
    return taken


def fit(passes: Passes) -> Fit | None:
    """Least squares through the passes, late ones left out; None without a spread.

    The error counts steps, by leaving out each in turn: the passes of one share what the host was
    busy with, and in TRL their width too, so they say no more than one pass does (the jackknife of
    MacKinnon, Nielsen and Webb, https://doi.org/10.1002/jae.2969; the sandwich's errors are too
    small where few steps are much wider than the others).
    """
    if len(passes.places) < _LEAST_PASSES:
        return None
    kept = _not_late(passes.places, passes.seconds)
    x, y = passes.places[kept], passes.seconds[kept]
    _, cluster = np.unique(passes.step[kept], return_inverse=True)
    steps = int(cluster.max()) + 1
    if x.std() < _LEAST_SPREAD * max(x.mean(), 1e-9) or steps < _LEAST_STEPS:
        return None
    of_step = [np.bincount(cluster, weights=w) for w in (np.ones(len(x)), x, y, x * x, x * y)]
    fixed_without = _intercept(*(sums.sum() - sums for sums in of_step))
    fixed = float(_intercept(*(sums.sum(keepdims=True) for sums in of_step))[0])
    spread = float(np.sqrt(((fixed_without - fixed) ** 2).sum() * (steps - 1) / steps))
    half = AT_95 * student(steps, AT_95) * spread
    low, fixed, high = np.clip([fixed - half, fixed, fixed + half], 0.0, y.mean()).tolist()
    slope = (float(y.mean()) - fixed) / float(x.mean())
    return Fit(fixed, slope, low, high, float(x.mean()))


def _not_late(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """All passes but those that stand out: the host was busy, and a plain fit would follow them.

    Leaving out a share of them, the slowest for their places, would leave out the smallest.
    """
    kept = np.ones(len(x), dtype=np.bool_)
    for _ in range(_ROUNDS):
        spread = np.cov(x[kept], y[kept], bias=True)
        slope = spread[0, 1] / spread[0, 0] if spread[0, 0] > 0 else 0.0
        line = y[kept].mean() + slope * (x - x[kept].mean())
        ratio = y / np.maximum(line, _LEAST_SHARE * y.mean())
        usual = _MAD * float(np.median(np.abs(ratio - np.median(ratio))))
        kept = ratio <= np.median(ratio) + _FAR * max(usual, _EVEN)
    return kept


def _intercept(*sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where lines cross zero places; an infinite number where places do not differ.

    Args:
        sums: of 1, x, y, x * x and x * y, of each line one.
    """
    count, x, y, xx, xy = sums
    spread = count * xx - x * x
    even = spread <= _LEAST_SPREAD**2 * x * x
    fixed = (y * xx - x * xy) / np.where(even, 1.0, spread)
    return np.where(even, np.inf, fixed)


def _micro_batch(case: Case) -> Effect:
    batch, passes = case.knob(_BATCH), case.knob(_PASSES)
    new_batch = case.after.get(_BATCH, batch)
    new_passes = case.after.get(_PASSES, passes)
    if not batch or not passes or not new_batch or not new_passes:
        raise UnsupportedError("the size or the number of the micro-batches was not recorded")
    if batch * passes != new_batch * new_passes:
        raise UnsupportedError(
            f"{new_passes} micro-batches of {new_batch} are another batch than {passes} of {batch}"
        )
    ratio = new_batch / batch
    if ratio == 1:
        return NOTHING
    if not 1 / _MOST_GROWTH <= ratio <= _MOST_GROWTH:
        raise UnsupportedError(f"passes {ratio:.3g} times as large are too far from those measured")
    if case.has_gpu:
        raise UnsupportedError(
            "kernels run beside the host's spans, so a pass's own time is not known"
        )
    line = fit(measured_passes(case.analysis))
    if line is None:
        raise UnsupportedError(
            "this run's passes are of one size, so what a pass costs besides its tokens is unknown"
        )
    now, part = line.seconds, _pass_of(case.analysis)

    def changes(fixed: float) -> tuple[Change, ...]:
        # What is fixed is paid once per pass: the fewer passes, the less of it.
        return (Edit((part, "logprob"), (fixed / ratio + (now - fixed)) / now),)

    few, many = changes(line.fixed_low), changes(line.fixed_high)
    middle = changes(line.fixed)
    return Effect(
        middle,
        f"a pass costs {1e3 * line.fixed:.3g} ms and {1e6 * line.slope:.3g} us per token place, "
        "and memory has room for larger ones",
        _ERROR,
        spread=Spread(middle, few, many) if ratio > 1 else Spread(middle, many, few),
    )


def padding_changes(case: Case, share: float) -> Effect:
    """Passes with only `share` of their places."""
    line = fit(measured_passes(case.analysis))
    if line is None:
        return Effect(
            (Edit(("train",), (1 + share) / 2),),
            "a pass takes time in proportion to its tokens, or half of that",
            2 * _ERROR,
            at_least=(Edit(("train",), 1.0),),
            at_most=(Edit(("train",), share),),
        )
    now, part = line.seconds, _pass_of(case.analysis)
    few, middle, many = (
        (Edit((part,), (fixed + (now - fixed) * share) / now),)
        for fixed in (line.fixed_low, line.fixed, line.fixed_high)
    )
    assumes = "places are what a pass's time depends on"
    return Effect(middle, assumes, _ERROR, spread=Spread(middle, shy=many, bold=few))


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


MODELS = (
    CostModel("micro-batch", (_BATCH, _PASSES), _micro_batch),
    CostModel("no padding", (_FREE, "train.group_by_length"), _padding),
)
