"""transformers' Trainer: the loop underneath TRL's and ms-swift's GRPO trainers.

A step begins where the loop fetches all micro-batches of an optimizer step, in
`get_batch_samples` (since 4.46), and ends where the next begins, or where training ends: logging,
evaluation and checkpoints are part of the step that they follow, stopping workers is of none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_probes import metrics, watch_collectives
from grpo_doctor_probes.hooks.adapters.trl_async import fetch_span
from grpo_doctor_probes.hooks.describing import describe_trainer
from grpo_doctor_probes.hooks.passes import metrics_logged
from grpo_doctor_probes.hooks.spans import STEPS, inside, open_spans
from grpo_doctor_probes.hooks.sums import SUMS
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import name_callbacks, name_rewards
from grpo_doctor_probes.hooks.wrapping import before, replacing
from grpo_doctor_probes.record.recorder import quietly

_TRAINER = "transformers.trainer"
_CALLBACKS = "transformers.trainer_callback"
_GENERATION = "transformers.generation.utils"


def _around_train(train: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(describe_trainer, self)
        quietly(name_rewards, self)
        quietly(name_callbacks, self)
        quietly(watch_collectives)
        quietly(SUMS.restart)
        result = train(self, *args, **kwargs)
        STEPS.end()
        return result

    return wrapper


def _begin_step(trainer: Any, *_: Any, **__: Any) -> None:
    STEPS.begin(trainer.state.global_step + 1)


def _around_log(log: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, logs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        quietly(_write_metrics, self, logs)
        if SUMS.on:
            quietly(_add_seconds, logs)
        result = log(self, logs, *args, **kwargs)
        quietly(metrics_logged)
        return result

    return wrapper


def _write_metrics(trainer: Any, logs: dict[str, Any]) -> None:
    if trainer.is_world_process_zero():
        metrics(trainer.state.global_step, logs)


def _add_seconds(logs: dict[str, Any]) -> None:
    if not inside("eval"):
        logs.update(SUMS.take(open_spans()))


ADAPTER = Adapter(
    "transformers",
    (
        Hook(
            _TRAINER, "Trainer.get_batch_samples", "dataload", "4.46-", span_of=fetch_span
        ),
        Hook(_TRAINER, "Trainer.training_step", "train", "4.40-"),
        Hook(_TRAINER, "Trainer._clip_grad_norm", "optimizer/clip", "5.0-"),
        Hook(_TRAINER, "Trainer._maybe_log_save_evaluate", "optimizer/log", "4.40-"),
        Hook(_TRAINER, "Trainer.evaluate", "eval", "4.40-"),
        Hook(_TRAINER, "Trainer._save_checkpoint", "checkpoint", "4.40-"),
        Hook(_TRAINER, "Trainer.save_model", "checkpoint", "4.40-"),
        # A judge that is a model in the rank generates too: that is the reward's.
        Hook(
            _GENERATION, "GenerationMixin.generate", "rollout/generate", "4.40-",
            unless=("reward",),
        ),
    ),
    {
        _TRAINER: replacing({
            "Trainer.train": _around_train,
            "Trainer.get_batch_samples": before(_begin_step),
            "Trainer.log": _around_log,
        }),
        _CALLBACKS: replacing({
            "CallbackHandler.on_train_end": before(lambda *_, **__: STEPS.end()),
        }),
    },
)  # fmt: skip
