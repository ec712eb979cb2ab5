"""Launches at the very edge of each flaw, and what rules say of those that have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.launches.pairs import REWARDS
from tests.unit.launches.rules.edges import (
    engines,
    inputs,
    layouts,
    processes,
    ray_batches,
    servers,
    surroundings,
    training,
)

RECORDED = Path(__file__).parent.with_name("edges.txt")
EDGES = (
    *processes.EDGES,
    *ray_batches.EDGES,
    *layouts.EDGES,
    *servers.EDGES,
    *engines.EDGES,
    *training.EDGES,
    *surroundings.EDGES,
    *inputs.EDGES,
)


def recorded() -> Iterator[str]:
    """A paragraph for each launch that has a flaw: all that is said of it."""
    for edge in EDGES:
        flaw = edge.flaw()
        if flaw is not None:
            how = ["ends the job"] * flaw.ends + ["comes first"] * flaw.first
            lines = [f"{', '.join([flaw.severity, *how])}: {flaw.headline}", *flaw.evidence]
            source = [f"in {flaw.source.text}"] if flaw.source else []
            text = "\n".join([edge.name, *lines, *(f"> {fix}" for fix in flaw.fixes), *source])
            yield text.replace(str(REWARDS), "REWARDS")
