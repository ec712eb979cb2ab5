"""slime and its fork miles: Megatron ranks are Ray actors that wait for rollouts and train.

The driver (`train.py`) has no functions to hook: it calls actors. So each rank has the steps: a
step begins when the rank is ready for the next rollout and ends when it was trained on. Until it is
called to train it waits, for rollouts and for what the driver does meanwhile; syncs, checkpoints
and offloads within that time are spans of their own, by slime's timer
(`slime.observability.timer`, `slime.utils.timer` until 0.3.1).
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes import metrics
from grpo_doctor_probes.hooks.adapters.slime_trajectories import TRAIN_ACTOR
from grpo_doctor_probes.hooks.adapters.slime_trajectories import of_package as trajectories_of
from grpo_doctor_probes.hooks.describing import describe_run
from grpo_doctor_probes.hooks.spans import STEPS, LongSpan, TimerSpans
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import (
    after,
    before,
    each,
    on_result,
    with_gpu_times,
    with_role,
)
from grpo_doctor_probes.record.sidecar import ROLE

_CLASS = "MegatronTrainRayActor"
_LABELS = {
    "data_preprocess": "dataload", "log_probs": "logprob/old", "ref_log_probs": "logprob/reference",
    "teacher_log_probs": "logprob/teacher", "actor_train": "train", "update_weights": "sync",
    "save_model": "checkpoint", "sleep": "offload", "wake_up": "offload",
}  # fmt: skip
_TIMER = TimerSpans(_LABELS.get)
_WAIT = LongSpan("rollout/wait")  # between two calls of `train`


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
        describe_run(package, settings, getattr(actor, "_world_size", None))
    _begin_step(int(start))


def _begin_step(number: int) -> None:
    STEPS.begin(number)
    _WAIT.begin()


def _trained(actor: Any, rollout_id: Any, *_: Any, **__: Any) -> None:
    if actor.role != "actor":
        return
    if int(rollout_id) + 1 < actor.args.num_rollout:
        _begin_step(int(rollout_id) + 1)
    else:
        STEPS.end()


def _log(_args: Any, values: Any, step_key: str) -> None:
    if step_key == "rollout/step":
        metrics(int(values[step_key]), values)


_PATCH_TIMER = {
    "Timer.start": before(lambda _timer, name: _TIMER.begin(name)),
    "Timer.end": before(lambda _timer, name: _TIMER.end(name)),
}


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
            logs: {"log": before(_log)},
            f"{package}.backends.megatron_utils.actor": {
                f"{_CLASS}.init": each(on_result(_started), before(_take_role)),
                f"{_CLASS}.train": each(after(_trained), before(lambda *_, **__: _WAIT.end())),
                f"{_CLASS}.train_actor": each(TRAIN_ACTOR, with_gpu_times),
            },
            rollouts: {"RolloutManager.__init__": with_role("rollout")},
            **trajectories_of(package),
        },
    )  # fmt: skip


ADAPTER = of_package("slime", "slime.ray.rollout", "slime.observability.logging_utils")
