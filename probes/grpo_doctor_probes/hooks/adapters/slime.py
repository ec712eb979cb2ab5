"""slime and its fork miles: Megatron ranks are Ray actors that wait for rollouts and train.

The driver (`train.py`) has no functions to hook: it calls actors. So each rank has the steps: a
step begins when the rank is ready for the next rollout and ends when it was trained on. Until it is
called to train it waits, for rollouts and for what the driver does meanwhile; syncs, checkpoints
and offloads within that time are spans of their own, by slime's timer
(`slime.observability.timer`, `slime.utils.timer` until 0.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_probes import describe, metrics
from grpo_doctor_probes.hooks.coverage import version_of
from grpo_doctor_probes.hooks.describing import package_versions
from grpo_doctor_probes.hooks.roles import with_gpu_times, with_role
from grpo_doctor_probes.hooks.spans import STEPS, HookedSpan
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.timers import TimerSpans
from grpo_doctor_probes.hooks.wrapping import before, on_result, replacing
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.sidecar import ROLE

_CLASS = "MegatronTrainRayActor"
_LABELS = {
    "data_preprocess": "dataload", "log_probs": "logprob/old", "ref_log_probs": "logprob/reference",
    "teacher_log_probs": "logprob/teacher", "actor_train": "train", "update_weights": "sync",
    "save_model": "checkpoint", "sleep": "offload", "wake_up": "offload",
}  # fmt: skip
_TIMER = TimerSpans(_LABELS.get)


class _Wait:
    """The span between two calls of `train`."""

    open: HookedSpan | None = None

    @classmethod
    def begin(cls, step: int) -> None:
        STEPS.begin(step)
        cls.open = HookedSpan("rollout/wait")
        cls.open.__enter__()

    @classmethod
    def end(cls, *_: Any, **__: Any) -> None:
        span, cls.open = cls.open, None
        if span is not None:
            span.__exit__(None, None, None)


def _take_role(_actor: Any, _args: Any, role: Any, *_: Any, **__: Any) -> None:
    if role != "actor":  # a critic's ranks have the numbers of the policy's
        ROLE.take(str(role))


def _started(start: Any, actor: Any, args: Any, role: Any, *_: Any, **__: Any) -> None:
    """A rank is ready; `start` is the number of the rollout that it begins with."""
    if role != "actor" or start is None:
        return
    if getattr(actor, "_rank", 0) == 0:
        package = type(actor).__module__.partition(".")[0]
        settings = {name: value for name, value in vars(args).items() if name[:1] != "_"}
        world = getattr(actor, "_world_size", None)
        describe(package, version_of(package), settings, package_versions(), world_size=world)
    _Wait.begin(int(start))


def _around_init(init: Callable[..., Any]) -> Callable[..., Any]:
    return before(_take_role)(on_result(_started)(init))


def _around_train(train: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, rollout_id: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(_Wait.end)
        result = train(self, rollout_id, *args, **kwargs)
        quietly(_trained, self, int(rollout_id))
        return result

    return wrapper


def _trained(actor: Any, rollout_id: int) -> None:
    if actor.role != "actor":
        return
    if rollout_id + 1 < actor.args.num_rollout:
        _Wait.begin(rollout_id + 1)
    else:
        STEPS.end()


def _log(_args: Any, values: Any, step_key: str) -> None:
    if step_key == "rollout/step":
        metrics(int(values[step_key]), values)


def _begin(_timer: Any, name: str) -> None:
    _TIMER.begin(name)


def _end(_timer: Any, name: str) -> None:
    _TIMER.end(name)


_PATCH_TIMER = replacing({"Timer.start": before(_begin), "Timer.end": before(_end)})


def of_package(package: str, rollouts: str, logs: str) -> Adapter:
    """Return the adapter of slime, or of a fork: `rollouts` and `logs` are modules of it."""
    return Adapter(
        package,
        (
            Hook(rollouts, "RolloutManager.generate", "rollout/generate", "0.1-"),
            Hook(rollouts, "RolloutManager.eval", "eval", "0.1-"),
        ),
        {
            f"{package}.observability.timer": _PATCH_TIMER,
            f"{package}.utils.timer": _PATCH_TIMER,
            logs: replacing({"log": before(_log)}),
            f"{package}.backends.megatron_utils.actor": replacing({
                f"{_CLASS}.init": _around_init,
                f"{_CLASS}.train": _around_train,
                f"{_CLASS}.train_actor": with_gpu_times,
            }),
            rollouts: replacing({"RolloutManager.__init__": with_role("rollout")}),
        },
    )  # fmt: skip


ADAPTER = of_package("slime", "slime.ray.rollout", "slime.observability.logging_utils")
