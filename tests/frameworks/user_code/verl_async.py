"""verl's own trainers whose rollout runs beside the training, without workers: TRAINER FOLDER.

TRAINER is `separate_async`, `one_step_off` or `fully_async`. The classes and their loops are
verl's; what workers on GPUs would do sleeps instead. How long samples were waited for in all is
written to FOLDER/stopwatch.json, in seconds.
"""

# mypy: disable-error-code=import-not-found

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
STEPS, WAIT_S, TRAIN_S = 4, 0.4, 0.2
WAITED: list[float] = []


def nothing(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


def same(_: Any, batch: Any, *__: Any, **___: Any) -> Any:
    """A method that gives back its batch."""
    return batch


def train(_: Any, batch: Any, *__: Any, **___: Any) -> Any:
    time.sleep(TRAIN_S)
    return batch


@contextlib.contextmanager
def waited() -> Any:
    start = time.perf_counter()
    yield
    WAITED.append(time.perf_counter() - start)


def count(trainer: Any) -> None:
    trainer.global_steps += 1


def without_workers(kind: type, names: dict[str, Any]) -> Any:
    """An object of verl's class whose `__init__`, which makes workers, was not called."""
    trainer: Any = object.__new__(type("Trainer", (kind,), names))
    trainer.global_steps, trainer.timing_raw = 0, {}
    return trainer


def separate_async() -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1 import trainer_base
    from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync

    def sample(**_: Any) -> tuple[Any, dict[str, float]]:
        with waited():
            time.sleep(WAIT_S)
        return SimpleNamespace(extra_info={}, tags=[], keys=[], partition_id="train"), {}

    names = dict.fromkeys(
        (
            "_add_batch_to_generate", "_reissue_inflight_prompts", "_start_profiling",
            "_stop_profiling", "_compute_metrics", "_shutdown_dump_executor", "on_train_begin",
        ),
        nothing,
    )  # fmt: skip
    names |= dict.fromkeys(("_balance_batch", "_compute_old_log_prob", "_compute_advantage"), same)
    trainer = without_workers(PPOTrainerSeparateAsync, {**names, "_update_actor": train})
    trainer_base.SkipManager = SimpleNamespace(init=nothing, set_step=nothing)
    trainer_base.tq = SimpleNamespace(kv_clear=nothing)
    trainer.config = OmegaConf.create({
        "data": {"train_batch_size": 4}, "global_profiler": {"steps": None},
        "actor_rollout_ref": {"rollout": {"temperature": 1.0}},
        "trainer": {
            "project_name": "p", "experiment_name": "e", "logger": [], "val_before_train": False,
            "critic_warmup": 0, "save_freq": 0, "test_freq": 0, "total_epochs": 1,
        },
    })  # fmt: skip
    trainer.total_training_steps = trainer.steps_per_epoch = STEPS
    trainer.parameter_sync_step, trainer.current_mode = 1, HybridEngineMode.TRAINER
    trainer.hybrid_rollout_config = SimpleNamespace(enable_switch=False)
    trainer.replay_buffer = SimpleNamespace(sample=sample)
    trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=())
    trainer.use_reference_policy = trainer.use_critic = False
    trainer.standalone_checkpoint_manager = SimpleNamespace(update_weights=nothing)
    trainer.fit(None)


def one_step_off() -> None:
    from omegaconf import OmegaConf
    from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer

    async def generate(self: Any, _: Any) -> Any:
        await asyncio.sleep(WAIT_S + TRAIN_S)  # while the batch before is trained on
        return {}, {}, 0, SimpleNamespace(meta_info={"timing": {}}), None

    def prepare(self: Any) -> None:
        self.is_last_step = self.global_steps == STEPS

    names: dict[str, Any] = dict.fromkeys(
        (
            "_fit_start_profile", "_fit_dump_data", "_fit_validate",
            "_fit_save_checkpoint", "_fit_stop_profile", "_fit_collect_metrics",
            "_fit_experimental", "_fit_update_weights", "_load_checkpoint",
            "_create_continuous_iterator",
        ),
        nothing,
    )  # fmt: skip
    names |= dict.fromkeys(_BATCH_PARTS, same)
    names |= {
        "_fit_update_actor": train, "_fit_prepare_step": prepare, "_fit_postprocess_step": count,
        "_async_gen_next_batch": generate,
    }  # fmt: skip
    trainer = without_workers(OneStepOffRayTrainer, names)
    trainer.config = OmegaConf.create({
        "trainer": {
            "project_name": "p", "experiment_name": "e", "logger": [], "val_before_train": False,
        },
        "actor_rollout_ref": {"rollout": {"temperature": 1.0}}, "global_profiler": {"steps": None},
    })  # fmt: skip
    trainer.total_training_steps, trainer.epoch, trainer.is_last_step = STEPS, 0, False
    asyncio.run(trainer.fit())
    # The first batch, and what training does not cover of the others.
    WAITED.extend([WAIT_S + TRAIN_S] + [WAIT_S] * (STEPS - 1))


_BATCH_PARTS = (
    "_fit_compute_reward", "_fit_compute_log_prob", "_fit_compute_ref_log_prob",
    "_fit_compute_critic", "_fit_compute_advantage", "_fit_update_critic",
)  # fmt: skip


def fully_async() -> None:
    from verl.experimental.fully_async_policy import fully_async_trainer

    actor = fully_async_trainer.FullyAsyncTrainer.__ray_metadata__.modified_class
    hook_as_in_its_process(actor)

    async def take(self: Any) -> Any:
        with waited():
            await asyncio.sleep(WAIT_S)
        if self.global_steps > STEPS:
            return None, None
        return 0, SimpleNamespace(meta_info={})

    async def ends(self: Any, *_: Any, **__: Any) -> None:
        return None

    names: dict[str, Any] = dict.fromkeys(
        (
            "_fit_start_profile", "_fit_update_local_step", "_fit_dump_data",
            "_fit_save_checkpoint", "_fit_stop_profile", "_fit_collect_metrics",
            "_collect_metrics_from_samples", "_record_train_resource_utilization",
        ),
        nothing,
    )  # fmt: skip
    names |= dict.fromkeys(_BATCH_PARTS, same)
    names |= {
        "_fit_update_actor": train, "_fit_update_weights": ends, "_fit_validate": ends,
        "_get_samples_from_queue": take, "_fit_postprocess_step": count,
    }  # fmt: skip
    trainer = without_workers(actor, names)
    trainer.message_queue_client = trainer.rollouter = object()
    trainer.dynamic_schedule_enabled, trainer.epoch, trainer.current_param_version = False, 0, 0
    trainer.local_trigger_step = 1
    trainer.dynamic_resource_controller = None
    trainer.progress_bar = SimpleNamespace(close=nothing, update=nothing)
    rollout = SimpleNamespace(temperature=1.0)
    trainer.config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout), trainer=SimpleNamespace(test_freq=1),
        global_profiler=SimpleNamespace(steps=None),
    )  # fmt: skip
    asyncio.run(trainer.fit())


def hook_as_in_its_process(actor: type) -> None:
    """What Ray's worker does with an actor's class before it makes one."""
    with contextlib.suppress(ImportError):  # the job alone
        from grpo_doctor_probes.hooks.boot import apply_to_actor

        apply_to_actor(actor)


if __name__ == "__main__":
    {"separate_async": separate_async, "one_step_off": one_step_off, "fully_async": fully_async}[
        MODE
    ]()
    (FOLDER / "stopwatch.json").write_text(json.dumps({"wait": sum(WAITED)}))
