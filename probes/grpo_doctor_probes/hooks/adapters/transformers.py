"""transformers' Trainer: the loop underneath TRL's and ms-swift's GRPO trainers.

A step begins where the loop fetches all micro-batches of an optimizer step, in
`get_batch_samples` (since 4.46), and ends where the next begins, or where training ends: logging,
evaluation and checkpoints are part of the step that they follow, stopping workers is of none.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes import metrics, watch_collectives
from grpo_doctor_probes.hooks.adapters.trl_async import fetch_span
from grpo_doctor_probes.hooks.describing import describe_trainer
from grpo_doctor_probes.hooks.spans import STEPS
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import name_callbacks, name_rewards
from grpo_doctor_probes.hooks.wrapping import after, before, each
from grpo_doctor_probes.record.recorder import quietly

_TRAINER = "transformers.trainer"
_CALLBACKS = "transformers.trainer_callback"
_GENERATION = "transformers.generation.utils"


def _prepare(trainer: Any, *_: Any, **__: Any) -> None:
    for note in (describe_trainer, name_rewards, name_callbacks):
        quietly(note, trainer)
    watch_collectives()


def _write_metrics(trainer: Any, logs: dict[str, Any], *_: Any, **__: Any) -> None:
    if trainer.is_world_process_zero():
        metrics(trainer.state.global_step, logs)


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
        _TRAINER: {
            "Trainer.train": each(before(_prepare), after(lambda *_, **__: STEPS.end())),
            "Trainer.get_batch_samples": before(
                lambda trainer, *_, **__: STEPS.begin(trainer.state.global_step + 1)
            ),
            "Trainer.log": before(_write_metrics),
        },
        _CALLBACKS: {
            "CallbackHandler.on_train_end": before(lambda *_, **__: STEPS.end()),
        },
    },
)  # fmt: skip
