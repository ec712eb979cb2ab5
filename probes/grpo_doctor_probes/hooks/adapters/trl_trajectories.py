"""Trajectories of TRL's AsyncGRPOTrainer: a conversation from its first turn to the trainer.

In the rollout loop a conversation is one call of `_generate_one`; then it waits for its group, is
scored with it, and is put into the queue that the trainer empties. The trainer knows a sample by
the moment at which it was put there, which the sample carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from grpo_doctor_probes.hooks.adapters.agent_trajectories import following, wrap_own
from grpo_doctor_probes.hooks.wrapping import Around, after, on_result
from grpo_doctor_probes.record.decorate import timed
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.trajectories import (
    CURRENT,
    FAILED,
    QUEUE,
    REWARD,
    TOOL,
    Part,
    Trajectory,
    apart,
    part,
    taken,
)

_RESET, _JUDGE = "reset", "get_reward"


# Trajectories that are under way, by the identity of the objects that stand for them.
_BY_SEQUENCES: dict[int, tuple[Trajectory, Part]] = {}
BY_ENVIRONMENT: dict[int, Trajectory] = {}
_BY_SAMPLE: dict[int, tuple[Any, Trajectory]] = {}
# Of samples whose environments are reset one after the other: those that are left.
RESETTING: list[Iterator[Trajectory]] = []


def _begun(
    one: Trajectory, loop: Any, _prompt: Any, tool_dict: Any = None, *_: Any, **more: Any
) -> None:
    one.note(group=more.get("group_id"), version=loop.model_version)
    for tool in (tool_dict or {}).values():
        environment = getattr(tool, "__self__", None)
        if environment is not None:
            BY_ENVIRONMENT[id(environment)] = one


def _generated(one: Trajectory, result: Any, loop: Any, *_: Any) -> None:
    """Note the answer, and begin to wait for the group."""
    completion_ids, sequences = result[1:3]
    one.note(tokens=len(completion_ids), last_version=loop.model_version)
    if not all(hasattr(each, "input_ids") for each in sequences):  # before 1.10: tokens
        one.end()
        return
    _BY_SEQUENCES[id(sequences)] = one, one.part(QUEUE)


def tool_call(
    name: str, tool: Callable[..., Any], of: Trajectory | None = None
) -> Callable[..., Any]:
    """Return a tool whose calls are parts of a conversation (default: of the current one)."""
    one = of or CURRENT.get()
    owner = getattr(tool, "__self__", None)
    full = name if owner is None else f"{type(owner).__name__}.{name}"
    return tool if one is None else timed(lambda *_, **__: part(f"{TOOL}/{full}", one), tool)


def _around_score(score: Callable[..., Any]) -> Callable[..., Any]:
    """All conversations of a group are scored at once."""

    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        group = args[0] if args else kwargs.get("group")
        sequences = getattr(group, "completions_sequences", ())
        waited = [_BY_SEQUENCES.pop(id(rows), (None, None)) for rows in sequences]
        ones = [one for one, _ in waited]
        with ExitStack() as parts:
            for one, waiting in waited:
                if waiting is not None:
                    quietly(waiting.end)
                    parts.enter_context(part(REWARD, one))
            try:
                samples = await score(self, *args, **kwargs)
            except BaseException:
                for one in filter(None, ones):
                    quietly(one.end, FAILED)
                raise
        quietly(_scored, ones, sequences, samples)
        return samples

    return wrapper


def _scored(ones: list[Trajectory | None], sequences: Any, samples: list[Any]) -> None:
    """A conversation gives a sample for each of its rows, in their order; some give none."""
    left = iter(samples)
    for one, rows in zip(ones, sequences):
        own = [next(left) for _ in rows]
        if one is None:
            continue
        if own:
            one.note(reward=own[0].metrics.get("reward"))
            _BY_SAMPLE.update((id(sample), (sample, one)) for sample in own)
        else:
            one.note(**{"dropped/no trained token": 1.0})
        one.end()


def watch(loop: Any) -> None:
    """Follow what a rollout loop puts into its queue, and its environments."""
    put = getattr(getattr(loop, "rollout_buffer", None), "put_nowait", None)
    if put is None:
        return

    def note_put(sample: Any) -> None:
        _, one = _BY_SAMPLE.pop(id(sample), (None, None))
        if one is not None:
            one.note(put=getattr(sample, "enqueued_at", None))  # since 1.15

    loop.rollout_buffer.put_nowait = after(note_put)(put)
    for pool in getattr(loop, "_environment_pool", {}).values():
        for environment in pool:
            watch_environment(type(environment))


def watch_environment(kind: type) -> None:
    """What an environment does before its conversation begins, and after, by its class."""
    wrap_own(kind, (_RESET, _JUDGE), _around_environment)


def _around_environment(_: type, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def where(environment: Any, *_: Any, **__: Any) -> AbstractContextManager[object]:
        full = f"{type(environment).__name__}.{name}"
        if name == _JUDGE:
            one, state = BY_ENVIRONMENT.pop(id(environment), None), REWARD
        else:
            one, state = _reset(environment) if RESETTING else None, TOOL
        return apart(f"{TOOL}/{full}") if one is None else part(f"{state}/{full}", one)

    return timed(where, function)


def _reset(environment: Any) -> Trajectory | None:
    one = BY_ENVIRONMENT.get(id(environment)) or next(RESETTING[0], None)
    if one is not None:
        BY_ENVIRONMENT[id(environment)] = one
    return one


def _watch_queue(dataset: Any, *_: Any, **__: Any) -> None:
    """Follow what the trainer takes, and what it drops because its weights are too old."""

    def took(sample: Any, *_: Any, **__: Any) -> None:
        key = getattr(sample, "enqueued_at", None)
        if key is not None:
            staleness = dataset.model_version_fn() - sample.model_version
            taken(key, "stale" if staleness > dataset.max_staleness else "", staleness)

    dataset.queue.get = on_result(took)(dataset.queue.get)


LOOP: dict[str, Around] = {
    "_AsyncRolloutLoop._generate_one": following(_begun, _generated, ends=False),
    "_AsyncRolloutLoop._score_group": _around_score,
}
TRAINER: dict[str, Around] = {"RolloutQueueDataset.__init__": after(_watch_queue)}
