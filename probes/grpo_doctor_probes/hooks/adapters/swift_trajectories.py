"""Trajectories of ms-swift's multi-turn schedulers in a server that `swift rollout` started.

One is a call of a scheduler's `run`, which the server awaits side by side. There it asks the
engine, and its own methods are what happens before the first turn and between two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following, wrap_own
from grpo_doctor_probes.hooks.table import HOOKED
from grpo_doctor_probes.hooks.wrapping import after, in_state, replacing
from grpo_doctor_probes.record.trajectories import GENERATE, TOOL, Trajectory

_TURNS = ("step", "on_trajectory_start", "on_turn_end")
_BASES = ("RolloutScheduler", "MultiTurnScheduler")


def _watch(scheduler: Any, *_: Any, **__: Any) -> None:
    engine = vars(scheduler).get("infer_engine")
    if engine is None:  # in a rank, which takes all samples through each turn together
        return
    if not hasattr(engine.infer_async, HOOKED):
        engine.infer_async = in_state(GENERATE)(engine.infer_async)
        setattr(engine.infer_async, HOOKED, True)
    scheduler.run = following(done=_done)(scheduler.run)
    wrap_own(type(scheduler), _TURNS, _around_turn, _BASES)


def _around_turn(owner: type, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return in_state(f"{TOOL}/{owner.__name__}.{method}")(function)


def _done(one: Trajectory, outputs: Any, *_: Any) -> None:
    rows = outputs if isinstance(outputs, list) else [outputs]
    one.note(tokens=sum(len(ids) for row in rows for ids in row.response_token_ids or ()))


PATCHES = dict.fromkeys(
    ("swift.rollout.multi_turn", "swift.plugin.multi_turn"),  # since 4.0, and before
    replacing({"RolloutScheduler.__init__": after(_watch)}),
)
