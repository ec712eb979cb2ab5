"""ms-swift's trainers on Megatron. A step begins with `train_step` and ends with the next one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_probes import metrics, watch_collectives
from grpo_doctor_probes.hooks.describing import describe_run, plain_settings
from grpo_doctor_probes.hooks.grpo_trainers import LOSS
from grpo_doctor_probes.hooks.spans import STEPS, timed_iterator
from grpo_doctor_probes.hooks.table import Hook
from grpo_doctor_probes.hooks.users_code import name_rewards, time_method
from grpo_doctor_probes.hooks.wrapping import Around, after, before, each
from grpo_doctor_probes.record import sidecar
from grpo_doctor_probes.record.recorder import quietly

_BASE, _TRAINER = "swift.megatron.trainers.base", "swift.megatron.trainers.grpo_trainer"
_MIXIN, _UTILS = "swift.megatron.trainers.rollout_mixin", "swift.megatron.trainers.utils"


def _mixin(method: str, span: str, versions: str = "4.0-") -> Hook:
    return Hook(_MIXIN, f"MegatronRolloutMixin.{method}", span, versions)


def _trainer(method: str, span: str, versions: str = "4.0-") -> Hook:
    return Hook(_TRAINER, f"MegatronGRPOTrainer.{method}", span, versions)


HOOKS = (
    Hook(_BASE, "BaseMegatronTrainer.train_step", "train", "4.0-"),
    _trainer("_replace_data_iterator", "rollout", "4.0-4.4"),
    _mixin("_replace_data_iterator", "rollout", "4.5-"),
    _trainer("_generate_and_score_completions", "rollout"),
    _trainer("_server_rollout", "rollout/generate"),
    _mixin("_server_rollout", "rollout/generate"),
    _mixin("_colocate_rollout", "rollout/generate"),
    _trainer("_score_completions", "reward"),
    _trainer("_compute_advantages", "reward/advantages"),
    _trainer("_maybe_compute_logps", "logprob"),
    _trainer("loss_func", LOSS),
    _mixin("_move_model_to_vllm", "sync"),
    Hook(_UTILS, "offload_megatron_model_to_cpu", "offload", "4.0-"),
    Hook(_UTILS, "offload_megatron_optimizer", "offload", "4.0-"),
    Hook(_UTILS, "load_megatron_model_to_gpu", "offload", "4.0-"),
    Hook(_UTILS, "load_megatron_optimizer", "offload", "4.0-"),
    Hook(_BASE, "BaseMegatronTrainer.save_checkpoint", "checkpoint", "4.0-"),
    Hook(_BASE, "BaseMegatronTrainer.evaluate", "eval", "4.0-"),
)


def _prepare(trainer: Any, *_: Any, **__: Any) -> None:
    if (sidecar.number("RANK") or 0) == 0:
        quietly(lambda: describe_run("ms-swift", plain_settings(trainer.args)))
    quietly(name_rewards, trainer)
    watch_collectives()


def _begin_step(trainer: Any, *_: Any, **__: Any) -> None:
    STEPS.begin(trainer.state.iteration + 1)
    time_method(trainer.optimizer, "step", "optimizer")


def _write_metrics(trainer: Any, logs: dict[str, Any], *_: Any, **__: Any) -> None:
    if (sidecar.number("RANK") or 0) == 0:
        metrics(trainer.state.iteration, logs)


def _around_iterators(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        iterators = prepare(self, *args, **kwargs)
        return tuple(None if data is None else timed_iterator(data) for data in iterators)

    return wrapper


PATCHES: dict[str, dict[str, Around]] = {
    _BASE: {
        "BaseMegatronTrainer.train_step": before(_begin_step),
        "BaseMegatronTrainer.train": each(before(_prepare), after(lambda *_, **__: STEPS.end())),
        "BaseMegatronTrainer.on_log": after(_write_metrics),  # by then they are numbers
        "BaseMegatronTrainer._prepare_data_iterator": _around_iterators,
    }
}
