"""A rollout server and its trainer: how long each works while the other stands still."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.findings.rule import Evidence, Fix
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Prediction, Withheld

# Published one-step-off runs gain 23-40 % and one lost time; where less than a seventh of the step
# could overlap, the older weights are not worth it.
MIN_OVERLAP = 0.15


@dataclass(frozen=True, slots=True)
class Sides:
    """Shares of the step: the engine's own work, the trainer's, and what could overlap."""

    engine: float
    trainer: float

    @property
    def overlap(self) -> float:
        """The shorter side: at most so much of the step would be hidden behind the other."""
        return min(self.engine, self.trainer)


def sides(view: RunView) -> Sides | None:
    """Splits the step where the engine is a server; None for an engine within the ranks.

    Weights are sent while neither side can work, so `sync` belongs to none.
    """
    if view.knob("vllm.use") is False or view.knob("vllm.mode") != "server":
        return None
    engine = view.share("rollout")
    return Sides(engine, max(0.0, 1.0 - engine - view.share("sync")))


def overlapped(view: RunView) -> Prediction | Withheld:
    """What it would bring to roll out while training."""
    if view.knob("rollout.async") is True:
        return Withheld("rollouts are asynchronous already")
    return view.what_if(rollout__async=True)


def overlap_fix(view: RunView, otherwise: str) -> Fix:
    """Rolls out the next batch while this one is trained on; else what the words say."""
    outcome = overlapped(view)
    risk = "Each step then trains on completions of the weights before the last update."
    if view.spell("rollout.async", True) is not None:
        return view.setting("rollout.async", True, outcome, safety="changes-algorithm", risk=risk)
    return view.advice(otherwise, outcome, safety="changes-algorithm", risk=risk)


def evidence(view: RunView, found: Sides) -> tuple[Evidence, ...]:
    """Both sides' shares, and what could overlap."""
    source = f"phase spans, mean of {len(view.analysis.step_seconds)} steps"
    return (
        Evidence("the engine works", round(100 * found.engine, 1), "% of the step", source),
        Evidence("the trainer works", round(100 * found.trainer, 1), "% of the step", source),
        Evidence("could overlap at most", round(100 * found.overlap, 1), "% of the step", source),
    )
