"""Reward processes: functions that run at the same time instead of one after the other.

The bundled trainer gives each user function to one process, in turn, and splits built-in functions
into parts for any free process. A function's own seconds are recorded separately, so the wall time
with n processes is that of the busiest one.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.step_model import Edit

# The bundled trainer's own functions score each completion by itself, in parts.
BUILT_IN = ("accuracy", "format", "length", "arithmetic")
_KNOB = "reward.num_workers"
_ERROR = 0.15


def _workers(case: Case) -> Effect:
    before, after = case.before.get(_KNOB), case.after[_KNOB]
    if case.analysis.trace.run.framework != "bundled":
        raise UnsupportedError("how this framework distributes rewards over processes is unknown")
    seconds = function_seconds(case)
    if before is None or not seconds:
        raise UnsupportedError("how long each reward function takes was not recorded")
    own = sum(case.work_s(f"reward/{name}") for name in seconds)
    if not own:
        return NOTHING
    wall, now = wall_s(seconds, after), wall_s(seconds, before)
    if wall == now:
        return NOTHING
    change = Edit(tuple(f"reward/{name}" for name in seconds), wall / now if now else 1.0)
    names = ", ".join(f"{name} {s:.3g} s" for name, s in seconds.items())
    return Effect((change,), f"the functions take no longer in parallel ({names})", _ERROR)


def function_seconds(case: Case) -> dict[str, float]:
    """Return each reward function's own seconds per step, in the order in which they are called."""
    order = [str(name) for name in _listed(case.analysis.trace.run.config.get("reward_funcs"))]
    seconds: dict[str, float] = {}
    for name in case.analysis.trace.names:
        kind, _, function = name.partition("/")
        if kind == "reward" and function:
            own = case.per_step(f"reward/{function}_s")
            if own is not None:
                seconds[function] = own
    position = {name.rpartition(":")[2]: index for index, name in enumerate(order)}
    return dict(sorted(seconds.items(), key=lambda item: position.get(item[0], len(position))))


def wall_s(seconds: Mapping[str, float], workers: int) -> float:
    """How long all functions take with so many processes; 0 and 1 are one after the other."""
    count = max(1, workers)
    users = [name for name in seconds if name not in BUILT_IN]
    loads = [0.0] * min(count, max(1, len(users)))  # the others have none of them
    for index, name in enumerate(users):
        loads[index % count] += seconds[name]
    shared = sum(seconds[name] for name in seconds if name in BUILT_IN)
    # Parts go to the process that is free first, so they fill up the emptier processes.
    return max(*loads, (sum(loads) + shared) / count)


def _listed(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return list(value)
    return [] if value is None else [value]


MODELS = (CostModel("reward processes", (_KNOB,), _workers),)
