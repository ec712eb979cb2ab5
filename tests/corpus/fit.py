"""The confidence table, from the verdicts on recorded jobs: `python -m tests.corpus fit`.

Kinds of roots first, from jobs seen whole, each kind leaning on the one above it as if that had
been seen in `lean` more cases, and the widest on what was right of unforeseen faults at first
sight. Then what the rest of the evidence moves, from all verdicts, by penalized logistic regression
in which evidence against a verdict can never speak for it. `lean` and the penalty are those whose
predictions for families that were left out have the smallest Brier score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.hang.decision.confidence import (
    ALL,
    EVIDENCE,
    Cell,
    Table,
    Weight,
    kinds_of,
    looked_up,
    value_of,
)
from tests.corpus.verdicts import WHOLE, Case
from tests.faults import first_pass
from tests.faults.score import ROUNDS
from tests.nccl_rules.score import Answer

COMMAND = "python -m tests.corpus fit"
_LEANS = (1.0, 4.0, 16.0)
_PENALTIES = (2.0, 8.0)
_ROUNDS, _LONGEST_STEP, _SETTLED = 200, 1.0, 1e-4

_SUREST_WRONG = 0.001  # no table of a thousand verdicts knows more
# With which sign a value may count: the rest may go either way. A base value counts nothing.
_BASE = {
    "recordings": "silent", "ras": "silent", "gpus": "silent", "stacks": "true", "victims": "true",
    "waited": "2", "several": "false", "unseen_hosts": "false",
}  # fmt: skip
_AGAINST = {("recordings", "disagrees"), ("ras", "disagrees"), ("gpus", "disagrees")}
_AGAINST |= {
    ("stacks", "false"),
    ("victims", "false"),
    ("unseen_hosts", "true"),
    ("several", "true"),
}
_FOR = {("recordings", "agrees"), ("ras", "agrees"), ("gpus", "agrees")}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """`lean`: cases that the kind above counts for; `penalty`: on squared log odds."""

    lean: float
    penalty: float


def fit(cases: Sequence[Case], settings: Settings) -> Table:
    """The table of these verdicts."""
    first = first_sight()
    kinds = _only_seen_worse(cases, first, settings.lean)
    kinds |= _kinds([case for case in cases if case.visibility == WHOLE], first, settings.lean)
    bare = Table(COMMAND, first, kinds, {})
    return Table(COMMAND, first, kinds, _evidence(cases, bare, settings.penalty))


def recordings(simulated: Sequence[Answer], lean: float) -> dict[str, Cell]:
    """How often dumps alone were right, by the grounds of the blame, in simulated jobs."""
    first = first_sight().probability
    of_grounds: dict[str, list[bool]] = defaultdict(list)
    for answer in simulated:
        of_grounds[answer.grounds or "none"].append(answer.right)
    return {
        grounds: Cell(
            len(rights), sum(rights), round((sum(rights) + lean * first) / (len(rights) + lean), 4)
        )
        for grounds, rights in sorted(of_grounds.items())
    }


def chosen(cases: Sequence[Case]) -> Settings:
    """The settings that predict left-out families best."""
    candidates = [Settings(lean, penalty) for lean, penalty in product(_LEANS, _PENALTIES)]
    return min(candidates, key=lambda settings: brier(predicted(cases, settings)))


def predicted(cases: Sequence[Case], settings: Settings) -> list[tuple[Case, float]]:
    """Each verdict with the confidence that a table made without its family gives it."""
    predictions = []
    for group in sorted({case.group for case in cases}):
        table = fit([case for case in cases if case.group != group], settings)
        predictions += [
            (case, looked_up(table, case.features)) for case in cases if case.group == group
        ]
    return predictions


def brier(predictions: Sequence[tuple[Case, float]]) -> float:
    """The mean squared distance of confidence and what was so."""
    return float(np.mean([(case.right - sure) ** 2 for case, sure in predictions]))


def first_sight() -> Cell:
    """What was right, ranks and class, of faults that nobody had foreseen, the first time."""
    outcomes = [outcome for name in ROUNDS for outcome in first_pass.outcomes(name)]
    right = sum(outcome.culprit_right and outcome.class_right for outcome in outcomes)
    return Cell(len(outcomes), right, round(right / len(outcomes), 4))


def _only_seen_worse(cases: Sequence[Case], first: Cell, lean: float) -> dict[str, Cell]:
    """Kinds that show only where less is seen, each for itself."""
    whole_sinks = {case.features.sink for case in cases if case.visibility == WHOLE}
    kinds: dict[str, Cell] = {}
    for sink in sorted({case.features.sink for case in cases} - whole_sinks):
        kinds |= _kinds([case for case in cases if case.features.sink == sink], first, lean)
    return kinds


def _kinds(cases: Sequence[Case], first: Cell, lean: float) -> dict[str, Cell]:
    """A kind leans on what is right in the rest of the kind above it: no case counts twice."""
    counts: Counter[str] = Counter()
    rights: Counter[str] = Counter()
    above: dict[str, str] = {}
    for case in cases:
        names = kinds_of(case.features)
        above |= dict(pairwise(names))
        counts.update(names)
        rights.update(names if case.right else ())
    cells = {ALL: _cell(counts[ALL], rights[ALL], first.probability, lean)}
    rest_probability = {ALL: first.probability}
    for name in sorted(above, key=lambda name: ("/" in name, name)):
        up = above[name]
        other_count, right = counts[up] - counts[name], rights[up] - rights[name]
        rest_probability[name] = _cell(other_count, right, rest_probability[up], lean).probability
        cells[name] = _cell(counts[name], rights[name], rest_probability[name], lean)
    return cells


def _cell(cases: int, right: int, leans_on: float, lean: float) -> Cell:
    share = (right + lean * leans_on) / (cases + lean)
    return Cell(cases, right, round(min(max(share, _SUREST_WRONG), 1 - _SUREST_WRONG), 4))


def _evidence(cases: Sequence[Case], bare: Table, penalty: float) -> dict[str, dict[str, Weight]]:
    columns: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, case in enumerate(cases):
        for name in EVIDENCE:
            columns[name, value_of(case.features, name)].append(row)
    used = sorted(key for key in columns if _plain(key[1]) != _BASE[key[0]])
    design = np.zeros((len(cases), len(used)))
    for at, key in enumerate(used):
        design[columns[key], at] = 1.0
    right = np.array([case.right for case in cases], dtype=np.float64)
    shares = np.array([looked_up(bare, case.features) for case in cases])
    coefficients = _regressed(design, right, np.log(shares / (1 - shares)), used, penalty)
    weights: dict[str, dict[str, Weight]] = {name: {} for name in EVIDENCE}
    for (name, value), log_odds in zip(used, coefficients):
        rows = columns[name, value]
        count = int(sum(right[rows]))
        weights[name][value] = Weight(len(rows), count, round(float(log_odds), 3))
    return weights


def _regressed(
    design: Floats, right: Floats, offset: Floats, used: Sequence[tuple[str, str]], penalty: float
) -> Floats:
    """Log odds by projected Newton steps, one column after the other."""
    low = np.array([-np.inf if (n, _plain(v)) not in _FOR else 0.0 for n, v in used])
    high = np.array([np.inf if (n, _plain(v)) not in _AGAINST else 0.0 for n, v in used])
    rows = [np.flatnonzero(column) for column in design.T]
    coefficients, odds = np.zeros(len(used)), offset.copy()
    for _ in range(_ROUNDS):
        before = coefficients.copy()
        for at, own in enumerate(rows):
            share = 1 / (1 + np.exp(-odds[own]))
            slope = float(np.sum(right[own] - share)) - penalty * coefficients[at]
            bend = float(np.sum(share * (1 - share))) + penalty
            step = np.clip(slope / bend, -_LONGEST_STEP, _LONGEST_STEP)
            new = float(np.clip(coefficients[at] + step, low[at], high[at]))
            odds[own] += new - coefficients[at]
            coefficients[at] = new
        if np.max(np.abs(coefficients - before), initial=0.0) < _SETTLED:
            break
    return coefficients


def _plain(value: str) -> str:
    return value.partition(",")[0]
