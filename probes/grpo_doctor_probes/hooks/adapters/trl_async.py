"""TRL's AsyncGRPOTrainer (experimental, since 1.0): training next to its own rollout loop.

The loop runs in a child process of rank 0, all in one event loop, and asks a vLLM server over
HTTP. In the ranks there is no phase of generating: what is seen there is that no samples are there
yet, which looks like slow data loading and is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_probes.hooks.adapters import trl_trajectories
from grpo_doctor_probes.hooks.adapters.trl_trajectories import tool_call
from grpo_doctor_probes.hooks.spans import write_ended
from grpo_doctor_probes.hooks.table import Hook
from grpo_doctor_probes.hooks.users_code import name_rewards
from grpo_doctor_probes.hooks.wrapping import Around, after, before, shared, with_role
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.trajectories import GENERATE

_TRAINER = "trl.experimental.async_grpo.async_grpo_trainer"
_LOOP = "trl.experimental.async_grpo.async_rollout_worker"
_TRANSFER = "trl.experimental.async_grpo.weight_transfer"
# A phase's part, so that the time is the rollout's and never `dataload`.
WAIT = "rollout/wait"
TOOLS = "rollout/tools"
# On the other side waits end in a metric that says how long they were: no room in the queue that
# the trainer empties; none before the reward, so that nothing more is generated.
_WAITS = {"rollout/backpressure_s": "rollout/queue", "rollout/score_block_s": "reward/queue"}

HOOKS = (
    Hook(_TRAINER, "AsyncGRPOTrainer._sync_weight", "sync", "1.0-"),
    Hook(_TRAINER, "AsyncGRPOTrainer.compute_loss", "train/loss", "1.0-"),
    Hook(_TRANSFER, "WeightTransferClient.pause", "sync/pause", "1.15-"),
    Hook(_TRANSFER, "WeightTransferClient.send_weights", "sync/send", "1.15-"),
    Hook(_TRANSFER, "WeightTransferClient.resume", "sync/resume", "1.15-"),
    Hook(
        _LOOP, "_AsyncRolloutLoop._generate_one_turn", "rollout/generate", "1.8-", shared=True,
        state=GENERATE,
    ),
    Hook(_LOOP, "_AsyncRolloutLoop._execute_tool_calls", TOOLS, "1.15-", shared=True),
    Hook(_LOOP, "_AsyncRolloutLoop._score_group", "reward", "1.8-", shared=True),
)  # fmt: skip


def fetch_span(trainer: object, *_: object, **__: object) -> str:
    """What it is to fetch batches: of a queue that a rollout loop fills, to wait for that loop."""
    classes = {f"{kind.__module__}.{kind.__name__}" for kind in type(trainer).__mro__}
    return WAIT if f"{_TRAINER}.AsyncGRPOTrainer" in classes else "dataload"


def _around_tools(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Each tool under its own name; those that are not coroutines run in threads of their own."""

    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        by_keyword = {name: _with_spans(value) for name, value in kwargs.items()}
        return await execute(self, *map(_with_spans, args), **by_keyword)

    return wrapper


def _with_spans(argument: Any) -> Any:
    """Return the same, the functions of a dictionary of tools within spans."""
    if not isinstance(argument, dict):
        return argument
    return {
        name: shared(f"{TOOLS}/{name}")(tool_call(name, tool))
        if hasattr(tool, "__code__")
        else tool
        for name, tool in argument.items()
    }


def _write_waits(_loop: Any, values: dict[str, Any], *_: Any, **__: Any) -> None:
    """Count how long the loop has just waited for room, where that wait ends."""
    active = recorder.ACTIVE
    for metric, span in _WAITS.items():
        waited_s = values.get(metric)
        if waited_s is not None and active is not None:
            write_ended(active, waited_s, span)


def _prepare(loop: Any, *_: Any, **__: Any) -> None:
    name_rewards(loop)
    trl_trajectories.watch(loop)


PATCHES: dict[str, dict[str, Around]] = {
    _LOOP: {
        "_AsyncRolloutLoop.__init__": after(_prepare),
        "_AsyncRolloutLoop.run": with_role("rollout"),
        "_AsyncRolloutLoop._execute_tool_calls": _around_tools,
        "_AsyncRolloutLoop._push_metrics": before(_write_waits),
        **trl_trajectories.LOOP,
    },
    _TRAINER: trl_trajectories.TRAINER,
}  # fmt: skip
