"""The fixed cost of training passes, fitted to this run's own passes.

seconds of a pass = fixed + slope * padded tokens. Each token counts with its share of attention:
wider passes take longer per token, and a straight line would underestimate the fixed part. If all
passes of a run have one size, fixed and slope are unknown.

Multiplications of a forward pass, counted from the sizes of a standard decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.rows import CODES
from grpo_doctor.analysis.sampled import series_named, value_at
from grpo_doctor.trace.intervals import Rows, innermost
from grpo_doctor.trace.model import Kind, Trace
from grpo_doctor.whatif.models.cost_model import knob
from grpo_doctor.whatif.prediction import AT_95, student


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Of one token: in the layers' weights, in the head's, and in attention per token of width."""

    layers: int
    head: int
    attention: int

    @property
    def attention_share(self) -> float:
        """What attention costs next to all weights, per token of width."""
        return self.attention / (self.layers + self.head)

    def layers_share(self, width: float) -> float:
        """The layers' part of a pass over sequences of so many tokens, attention included."""
        layers = self.layers + self.attention * width
        return layers / (layers + self.head)


def arithmetic_of(config: Mapping[str, Any]) -> Arithmetic | None:
    """From a run's configuration; None where it does not say how large the model is.

    Each layer has four matrices for attention and three beyond it. Attention multiplies a token's
    query with the keys before it, and its weights with their values, `hidden` each: with half of
    the sequence, as tokens average. Kernels that are given a mask do the other half too.
    """
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    sizes = [config.get(f"model_{name}") for name in names]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    vocabulary, hidden, inner, layers = (int(str(size)) for size in sizes)
    return Arithmetic(
        layers=layers * (4 * hidden * hidden + 3 * hidden * inner),
        head=vocabulary * hidden,
        attention=layers * hidden,
    )


PASS, PLACES, BATCH = "train/micro_batch", "train/token_places", "train.micro_batch"
# transformers' trainers have a span of the whole phase for each micro-batch, the rollout inside.
WHOLE = "train"
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
    """Forward and backward passes of the used steps: seconds, places, step; shape (passes,).

    `attention` is what a place of the pass adds to the arithmetic of each of its places.
    """

    seconds: NDArray[np.float64]
    places: NDArray[np.float64]
    step: Rows
    attention: float = 0.0

    @property
    def work(self) -> NDArray[np.float64]:
        """Places with their attention, in places that have none."""
        work: NDArray[np.float64] = self.places * (1 + self.attention * self.places)
        return work


@dataclass(frozen=True, slots=True)
class Fit:
    """The mean pass, which has `places` and takes `seconds`; `fixed` of them whatever its size.

    `fixed_low` and `fixed_high` hold the fixed part nine times in ten. `attention_share` is the
    attention's part of what is not fixed.
    """

    seconds: float
    fixed: float
    fixed_low: float
    fixed_high: float
    places: float
    attention_share: float

    @property
    def slope(self) -> float:
        """Seconds of each place of the mean pass."""
        return (self.seconds - self.fixed) / self.places

    def shares_of_narrower(self, share: float) -> tuple[float, float, float]:
        """What the pass would take of its time, were its sequences of `share` of their length.

        The middle lies between the cautious and the bold end of what the fit leaves open.
        """
        less = share * (1 - self.attention_share * (1 - share))
        fixed = np.array([self.fixed_high, self.fixed, self.fixed_low]) / self.seconds
        cautious, middle, bold = (fixed + (1 - fixed) * less).tolist()
        return cautious, middle, bold


def measured_passes(analysis: Analysis) -> Passes:
    """Return the recorded passes of all ranks' main threads, with the places counted for each."""
    trace, spans = analysis.trace, analysis.trace.spans
    name = pass_of(analysis)
    counters = {s.rank: s for s in series_named(trace, PLACES)}
    seconds, places, steps = [np.empty(0)], [np.empty(0)], [np.empty(0, dtype=np.intp)]
    for column, main in enumerate(analysis.mains):
        series = counters.get(main.rank)
        rows = main.rows[_has_name(trace, main.rows, name) & (spans.kind[main.rows] == Kind.SPAN)]
        if series is None or not len(rows):
            continue
        step = analysis.steps.of(np.full(len(rows), column), spans.start_ns[rows], used=True)
        rows, step = rows[step >= 0], step[step >= 0]
        if name == PASS:
            counted = value_at(series, spans.start_ns[rows])
            duration = (spans.end_ns[rows] - spans.start_ns[rows]) / 1e9
        else:  # the first of them generates what is then counted
            counted = value_at(series, spans.end_ns[rows])
            duration = _without_other_phases(analysis, column, rows)
        finite = np.isfinite(counted)
        seconds.append(duration[finite])
        places.append(counted[finite])
        steps.append(step[finite])
    return Passes(
        np.concatenate(seconds), np.concatenate(places), np.concatenate(steps), _attention(analysis)
    )


def _attention(analysis: Analysis) -> float:
    """Return a sequence is as wide as its share of the pass's places; 0 where that is not known."""
    counted, sequences = arithmetic_of(analysis.trace.run.config), knob(analysis, BATCH)
    return counted.attention_share / sequences if counted and sequences else 0.0


def pass_of(analysis: Analysis) -> str:
    """What a pass is recorded as, and so the part of a step that becomes longer or shorter."""
    return PASS if PASS in analysis.trace.names else WHOLE


def _has_name(trace: Trace, rows: Rows, name: str) -> NDArray[np.bool_]:
    code = trace.names.index(name) if name in trace.names else -1
    return np.asarray(trace.spans.name[rows] == code)


def _without_other_phases(analysis: Analysis, column: int, passes: Rows) -> NDArray[np.float64]:
    """Seconds of training in each pass: a framework may generate completions within its first."""
    spans, main = analysis.trace.spans, analysis.mains[column]
    in_phase = (spans.kind[main.rows] == Kind.SPAN) & (main.phase >= 0)
    rows, phase = main.rows[in_phase], main.phase[in_phase]
    pieces, owner = innermost(spans.start_ns[rows], spans.end_ns[rows])
    training = phase[owner] == CODES["train"]
    start_ns, end_ns = pieces.start_ns[training], pieces.end_ns[training]
    order = np.argsort(spans.start_ns[passes])
    number = np.searchsorted(spans.start_ns[passes][order], start_ns, side="right") - 1
    within = (number >= 0) & (end_ns <= spans.end_ns[passes][order][number])
    seconds = np.zeros(len(passes))
    np.add.at(seconds, order[number[within]], (end_ns - start_ns)[within] / 1e9)
    return seconds


def fit(passes: Passes) -> Fit | None:
    """Least squares through the passes, late ones left out; None without a spread.

    The error counts steps, by leaving out each in turn: the passes of one share what the host was
    busy with, and in TRL their width too, so they say no more than one pass does (the jackknife of
    MacKinnon, Nielsen and Webb, https://doi.org/10.1002/jae.2969; the sandwich's errors are too
    small where few steps are much wider than the others).
    """
    if len(passes.places) < _LEAST_PASSES:
        return None
    work = passes.work
    usual = _not_late(work, passes.seconds)
    x, y = work[usual], passes.seconds[usual]
    _, cluster = np.unique(passes.step[usual], return_inverse=True)
    steps = int(cluster.max()) + 1
    if x.std() < _LEAST_SPREAD * max(x.mean(), 1e-9) or steps < _LEAST_STEPS:
        return None
    of_step = [np.bincount(cluster, weights=w) for w in (np.ones(len(x)), x, y, x * x, x * y)]
    fixed_without = _intercept(*(sums.sum() - sums for sums in of_step))
    fixed = float(_intercept(*(sums.sum(keepdims=True) for sums in of_step))[0])
    spread = float(np.sqrt(((fixed_without - fixed) ** 2).sum() * (steps - 1) / steps))
    half = AT_95 * student(steps, AT_95) * spread
    low, fixed, high = np.clip([fixed - half, fixed, fixed + half], 0.0, y.mean()).tolist()
    places = float(passes.places[usual].mean())
    return Fit(float(y.mean()), fixed, low, high, places, 1 - places / float(x.mean()))


def _not_late(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """All passes but those that stand out: the host was busy, and a plain fit would follow them.

    Leaving out a share of them, the slowest for their places, would leave out the smallest.
    """
    usual = np.ones(len(x), dtype=np.bool_)
    for _ in range(_ROUNDS):
        spread = np.cov(x[usual], y[usual], bias=True)
        slope = spread[0, 1] / spread[0, 0] if spread[0, 0] > 0 else 0.0
        line = y[usual].mean() + slope * (x - x[usual].mean())
        ratio = y / np.maximum(line, _LEAST_SHARE * y.mean())
        deviation = _MAD * float(np.median(np.abs(ratio - np.median(ratio))))
        usual = ratio <= np.median(ratio) + _FAR * max(deviation, _EVEN)
    return usual


def _intercept(*sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return where lines cross zero places; an infinite number where places do not differ.

    Args:
        sums: of 1, x, y, x * x and x * y, of each line one.
    """
    count, x, y, xx, xy = sums
    spread = count * xx - x * x
    even = spread <= _LEAST_SPREAD**2 * x * x
    fixed = (y * xx - x * xy) / np.where(even, 1.0, spread)
    return np.where(even, np.inf, fixed)
