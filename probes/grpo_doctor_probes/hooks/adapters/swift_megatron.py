"""ms-swift's trainers on Megatron, under torchrun and under Ray.

A step begins with `train_step` and ends where the next begins. Under Ray a driver generates and
scores, and directs its workers: it carries the steps, and they have a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from grpo_doctor_probes import describe, metrics, watch_collectives
from grpo_doctor_probes.hooks.coverage import version_of
from grpo_doctor_probes.hooks.describing import package_versions, plain_settings
from grpo_doctor_probes.hooks.grpo_trainers import LOSS, OLD, REFERENCE
from grpo_doctor_probes.hooks.spans import STEPS, HookedSpan
from grpo_doctor_probes.hooks.table import Hook
from grpo_doctor_probes.hooks.users_code import name_rewards, time_method
from grpo_doctor_probes.hooks.wrapping import (
    Around,
    after,
    before,
    each,
    on_result,
    with_gpu_times,
    with_role,
)
from grpo_doctor_probes.record import sidecar
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.rundir import DRIVER

_FRAMEWORK = "ms-swift"
_BASE, _TRAINER = "swift.megatron.trainers.base", "swift.megatron.trainers.grpo_trainer"
_MIXIN, _UTILS = "swift.megatron.trainers.rollout_mixin", "swift.megatron.trainers.utils"
_RAY = "swift.ray.megatron"
_DRIVER, _GROUP = f"{_RAY}.grpo_trainer", f"{_RAY}.worker_group"
_RAY_BASE, _WORKER = f"{_RAY}.base_trainer", f"{_RAY}.megatron_worker"
_WEIGHTS = f"{_RAY}.checkpoint_engine.manager"
_TO_CPU, _TO_DEVICE = "to_cpu", "to_device"
# What a driver waits for when it tells its workers to do this.
_ORDERS = {
    "train_step": "train",
    "compute_logps": OLD,
    "compute_ref_logps": REFERENCE,
    "offload_to_cpu": "offload",
    "reload_to_gpu": "offload",
    "update_weights": "sync/send",
}


def _span_of_order(_group: Any, method: str, *_: Any, **__: Any) -> str | None:
    return _ORDERS.get(method)


def _mixin(method: str, span: str, versions: str = "4.0-") -> Hook:
    return Hook(_MIXIN, f"MegatronRolloutMixin.{method}", span, versions)


def _trainer(method: str, span: str, versions: str = "4.0-") -> Hook:
    return Hook(_TRAINER, f"MegatronGRPOTrainer.{method}", span, versions)


def _moving(function: str, direction: str) -> Hook:
    return Hook(_UTILS, function, "offload", "4.0-", direction=direction)


HOOKS = (
    Hook(_BASE, "BaseMegatronTrainer.train_step", "train", "4.0-"),
    _trainer("_replace_data_iterator", "rollout", "4.0-4.4"),
    _mixin("_replace_data_iterator", "rollout", "4.5-"),
    _trainer("_generate_and_score_completions", "rollout"),
    _trainer("_server_rollout", "rollout/generate"),
    _mixin("_server_rollout", "rollout/generate"),
    _mixin("_colocate_rollout", "rollout/generate"),
    _trainer("_score_completions", "reward"),
    _trainer("_compute_advantages", "reward/advantages", "4.0-"),
    _trainer("_maybe_compute_logps", "logprob"),
    _trainer("loss_func", LOSS),
    _mixin("_move_model_to_vllm", "sync"),
    _moving("offload_megatron_model_to_cpu", _TO_CPU),
    _moving("offload_megatron_optimizer", _TO_CPU),
    _moving("load_megatron_model_to_gpu", _TO_DEVICE),
    _moving("load_megatron_optimizer", _TO_DEVICE),
    Hook(_BASE, "BaseMegatronTrainer.save_checkpoint", "checkpoint", "4.0-"),
    Hook(_BASE, "BaseMegatronTrainer.evaluate", "eval", "4.0-"),
    Hook(_DRIVER, "GRPOTrainer._generate", "rollout", "4.3-"),
    Hook(_DRIVER, "GRPOTrainer._postprocess_rollout", "rollout/postprocess", "4.3-"),
    Hook(_DRIVER, "GRPOTrainer.encode_rollout_batch", "rollout/encode", "4.3-"),
    Hook(_DRIVER, "GRPOTrainer.score_completions", "reward", "4.3-"),
    Hook(_DRIVER, "GRPOTrainer.compute_advantages", "reward/advantages", "4.3-"),
    Hook(_RAY_BASE, "BaseRayTrainer._collate_for_workers", "rollout/encode", "4.4-"),
    Hook(_WEIGHTS, "CheckpointEngineManager.sync_weights", "sync", "4.3-"),
    Hook(_WEIGHTS, "CheckpointEngineManager.sleep_rollout", "offload", "4.3-", direction=_TO_CPU),
    Hook(
        _WEIGHTS, "CheckpointEngineManager.wake_up_rollout", "offload", "4.3-",
        direction=_TO_DEVICE,
    ),
    Hook(_GROUP, "WorkerGroup.execute", "train", "4.3-", span_of=_span_of_order),
    Hook(_WORKER, "MegatronWorker.train_step", "train", "4.3-"),
    Hook(_WORKER, "MegatronWorker.compute_logps", OLD, "4.3-"),
    Hook(_WORKER, "MegatronWorker.compute_ref_logps", REFERENCE, "4.3-"),
    Hook(_WORKER, "MegatronWorker.update_weights", "sync", "4.3-"),
    Hook(_WORKER, "MegatronWorker.offload_to_cpu", "offload", "4.3-", direction=_TO_CPU),
    Hook(_WORKER, "MegatronWorker.reload_to_gpu", "offload", "4.3-", direction=_TO_DEVICE),
)  # fmt: skip


def _prepare(trainer: Any, *_: Any, **__: Any) -> None:
    quietly(_describe, trainer.args)
    quietly(name_rewards, trainer)
    watch_collectives()


def _describe(arguments: Any, world_size: int | None = None) -> None:
    if (sidecar.number("RANK") or 0) == 0:
        settings = plain_settings(arguments)
        version = version_of(_FRAMEWORK)
        describe(_FRAMEWORK, version, settings, package_versions(), world_size)


def _begin_step(trainer: Any, *_: Any, **__: Any) -> None:
    if sidecar.ROLE.of_this_process() is not None:  # a driver carries the steps
        return
    STEPS.begin(trainer.state.iteration + 1)
    time_method(trainer.optimizer, "step", "optimizer")


def _write_metrics(trainer: Any, logs: dict[str, Any], *_: Any, **__: Any) -> None:
    if (sidecar.number("RANK") or 0) == 0:
        metrics(trainer.state.iteration, logs)


def _around_iterators(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        iterators = prepare(self, *args, **kwargs)
        return tuple(None if data is None else _timed_iterator(data) for data in iterators)

    return wrapper


def _timed_iterator(iterator: Iterator[Any]) -> Iterator[Any]:
    while True:
        try:
            with HookedSpan("dataload"):
                item = next(iterator)
        except StopIteration:
            return
        yield item


def _begin_driver(trainer: Any, tg: Any, train_iters: int, iteration: int) -> None:
    sidecar.ROLE.take(DRIVER)
    _describe(trainer.args, tg.world_size)
    name_rewards(trainer)
    _LAST.append(train_iters)
    STEPS.begin(iteration + 1)


_LAST: list[int] = []


def _next_step(iteration: int, *_: Any, **__: Any) -> None:
    STEPS.end()
    if iteration < _LAST[-1]:
        STEPS.begin(iteration + 1)


def _time_loader(trainer: Any, *_: Any, **__: Any) -> None:
    trainer._data_iter = _timed_iterator(trainer._data_iter)  # noqa: SLF001 - the class's own


def _end(*_: Any, **__: Any) -> None:
    STEPS.end()


PATCHES: dict[str, dict[str, Around]] = {
    _BASE: {
        "BaseMegatronTrainer.train_step": before(_begin_step),
        "BaseMegatronTrainer.train": each(before(_prepare), after(_end)),
        "BaseMegatronTrainer.on_log": after(_write_metrics),  # by then they are numbers
        "BaseMegatronTrainer._prepare_data_iterator": _around_iterators,
    },
    _DRIVER: {
        "GRPOTrainer._train_loop": each(before(_begin_driver), after(_end)),
        "extract_iteration": on_result(_next_step),
    },
    _RAY_BASE: {"BaseRayTrainer._build_dataloader": after(_time_loader)},
    _WORKER: {
        "MegatronWorker.__init__": with_role("actor"),
        **{
            f"MegatronWorker.{method}": with_gpu_times
            for method in ("train_step", "compute_logps", "compute_ref_logps")
        },
    },
}
