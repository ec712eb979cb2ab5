"""A step before and after a change, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence

from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.whatif.edits import Change
from grpo_doctor.whatif.model import StepModel
from grpo_doctor.whatif.replay import replay, work_after

WAIT = "waits"


def by_phase(model: StepModel, changes: Sequence[Change]) -> dict[str, tuple[float, float]]:
    """Seconds per step before and after: own work of each phase that there is, the mean over ranks.

    `WAIT` is what the step takes beyond: waits for other ranks, and after the change for loader
    processes; below zero where two sides of the step go on at once.
    """
    cells = max(1, len(model.ranks)) * max(1, len(model.measured_s))
    changed = work_after(model, changes)
    found: dict[str, tuple[float, float]] = {}
    for phase in (*PHASES, UNATTRIBUTED):
        chosen = model.part(phase)
        before, after = float(model.seconds[chosen].sum()), float(changed[chosen].sum())
        if before or after:
            found[phase] = before / cells, after / cells
    whole = (replay(model), replay(model, changes))
    rest = [
        float(steps.mean()) - sum(pair[which] for pair in found.values())
        for which, steps in enumerate(whole)
    ]
    return {**found, WAIT: (rest[0], rest[1])}
