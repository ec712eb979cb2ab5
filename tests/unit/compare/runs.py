"""Runs to compare, and their comparison."""

from __future__ import annotations

import json

import msgspec

from grpo_doctor.compare import ComparisonDocument, compare
from grpo_doctor.trace.model import Trace
from tests.build import TraceBuilder


def compared(before: Trace, after: Trace) -> ComparisonDocument:
    """The comparison, after checking that it is valid JSON of the schema."""
    comparison = compare(before, after)
    text = json.dumps(msgspec.to_builtins(comparison), allow_nan=False)
    assert msgspec.json.decode(text, type=ComparisonDocument) == comparison
    return comparison


def steps(count: int, seconds: float, **more: float) -> TraceBuilder:
    """One rank whose steps take so long, with a little spread."""
    build = TraceBuilder(ranks=1)
    now = 0.0
    for number in range(count):
        length = seconds * (1 + 0.02 * (number % 3 - 1))
        build.step(0, number, now, {"rollout": 0.6 * length, "train": 0.4 * length})
        now += length
    if "tokens" in more:
        times = [(n + 0.5) * seconds for n in range(count)]
        values = [more["tokens"]] * count
        build.series("rollout/tokens", "", times, values, scope="counter", rank=0)
    return build


def uneven(ends: dict[int, float], *, ranks: int = 2, last_of: dict[int, int]) -> Trace:
    """Ten steps of a second but for those in `ends`; ranks in `last_of` end after that step."""
    build, now = TraceBuilder(ranks=ranks), 0.0
    for number in range(10):
        for rank in range(ranks):
            if number <= last_of.get(rank, 10):
                build.step(rank, number, now, {"train": ends.get(number, 1.0)})
        now += ends.get(number, 1.0)
    return build.build()
