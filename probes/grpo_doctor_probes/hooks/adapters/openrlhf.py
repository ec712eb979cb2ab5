"""OpenRLHF's PPO and GRPO trainers: which function of the controller and its actors is which phase.

The controller carries the steps. It waits in `ray.get` for what others do, so that its host times
are those of the work; rewards are called while samples are generated, in the actors of the engines.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes import watch_collectives
from grpo_doctor_probes.hooks.adapters import openrlhf_steps as steps
from grpo_doctor_probes.hooks.adapters import openrlhf_trajectories as trajectories
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import name_of, with_span
from grpo_doctor_probes.hooks.wrapping import (
    after,
    before,
    by_arguments,
    each,
    in_state,
    on_result,
    spanned,
    with_role,
)
from grpo_doctor_probes.record.rundir import DRIVER
from grpo_doctor_probes.record.sidecar import ROLE
from grpo_doctor_probes.record.trajectories import REWARD

_TRAINER = "openrlhf.trainer.ppo_trainer"
_ASYNC = "openrlhf.trainer.ppo_trainer_async"
_SAMPLES = "openrlhf.trainer.ppo_utils.samples_generator"
_EXPERIENCE = "openrlhf.trainer.ppo_utils.experience_maker"
_LAUNCHER = "openrlhf.trainer.ray.launcher"
_ACTOR = "openrlhf.trainer.ray.ppo_actor"
_CRITIC = "openrlhf.trainer.ray.ppo_critic"
_ENGINE = "openrlhf.trainer.ray.vllm_engine"
_AGENT = "openrlhf.utils.agent"

_ROLES = {"PolicyModelActor": "actor", "CriticModelActor": "critic", "RewardModelActor": "reward"}
_CALLS = {
    "sleep": "offload", "wake_up": "offload", "pause_generation": "sync/pause",
    "resume_generation": "sync/resume",
}  # fmt: skip


def _take_role(actor: Any, *_: Any, **__: Any) -> None:
    ROLE.take(_ROLES.get(type(actor).__name__, "reference"))


def _name_wait(generator: Any, *_: Any, **__: Any) -> None:
    """Generation ahead of the trainer waits for a place in the queue."""
    slots = getattr(generator, "rollout_slots", None)
    if slots is not None:
        slots.get = spanned(slots.get, "rollout/queue")


def _name_reward(executor: Any, *_: Any, **__: Any) -> None:
    if executor.reward_func is not None:
        name = name_of(executor.reward_func)
        spanned_func = with_span(executor.reward_func, name)
        executor.reward_func = in_state(f"{REWARD}/{name}")(spanned_func)


_SAMPLING = {
    "SamplesGenerator.generate_samples": before(steps.begin_if_due), **trajectories.SAMPLES,
}  # fmt: skip
ADAPTER = Adapter(
    "openrlhf",
    (
        Hook(_SAMPLES, "SamplesGenerator.generate_samples", "rollout", "0.9.9-"),
        Hook(_EXPERIENCE, "SamplesGenerator.generate_samples", "rollout", "0.9.1-0.9.8"),
        Hook(_SAMPLES, "_collect_prompt_batch", "dataload", "0.9.9-"),
        Hook(_EXPERIENCE, "RemoteExperienceMaker.make_experience_batch", "logprob", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.train_step", "train", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.ppo_train", "train/update", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_ASYNC, "TrainingActor.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.save_best_checkpoint", "checkpoint", "0.9.9-"),
        Hook(_TRAINER, "PPOTrainer.evaluate", "eval", "0.9.1-"),
        Hook(_ASYNC, "GenerateSamplesActor._run_eval", "eval", "0.9.7-"),
        # In the processes of the models.
        Hook(_LAUNCHER, "ReferenceModelActor.forward", "logprob/reference", "0.9.1-"),
        Hook(_LAUNCHER, "RewardModelActor.forward", "reward/model", "0.9.1-"),
        Hook(_ACTOR, "PolicyModelActor.forward", "logprob/old", "0.9.1-"),
        Hook(_ACTOR, "ActorPPOTrainer.ppo_train", "train", "0.9.1-"),
        Hook(_ACTOR, "ActorPPOTrainer.training_step", "train/micro_batch", "0.9.1-"),
        Hook(_ACTOR, "ActorPPOTrainer.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_ACTOR, "PolicyModelActor.reload_states", "offload", "0.9.1-"),
        Hook(_ACTOR, "PolicyModelActor.offload_states", "offload", "0.9.1-"),
        Hook(_ACTOR, "PolicyModelActor.save_checkpoint", "checkpoint", "0.9.1-"),
        Hook(_ACTOR, "PolicyModelActor.save_model", "checkpoint", "0.9.1-"),
        Hook(_CRITIC, "CriticModelActor.forward", "logprob/values", "0.9.1-"),
        Hook(_CRITIC, "CriticPPOTrainer.ppo_train", "train", "0.9.1-"),
        Hook(_CRITIC, "CriticPPOTrainer.training_step", "train/micro_batch", "0.9.1-"),
        *trajectories.HOOKS,
    ),
    {
        _TRAINER: {
            "PPOTrainer.__init__": with_role(DRIVER),
            "PPOTrainer.fit": steps.around_fit,
            "PPOTrainer.evaluate": on_result(steps.write_evaluation),
            "BasePPOTrainer.init_checkpoint_states": on_result(steps.resume),
            "BasePPOTrainer.save_logs_and_checkpoints": steps.around_logging,
            **trajectories.TRAINER,
        },
        _ASYNC: {
            "TrainingActor.__init__": with_role(DRIVER),
            "TrainingActor.fit": steps.around_fit,
            "GenerateSamplesActor.__init__": with_role("rollout-loop"),
            "GenerateSamplesActor.fit": before(_name_wait),
        },
        _SAMPLES: _SAMPLING,
        _EXPERIENCE: _SAMPLING,
        _LAUNCHER: {
            "BaseModelActor._setup_distributed": each(
                before(_take_role), after(lambda *_, **__: watch_collectives())
            ),
        },
        _ENGINE: {
            **{f"{name}.__init__": with_role("rollout") for name in trajectories.ACTORS},
            **trajectories.ENGINE,
            "batch_vllm_engine_call": by_arguments(
                lambda _engines, method_name, *_, **__: _CALLS.get(method_name)
            ),
        },
        _AGENT: {
            "SingleTurnAgentExecutor.__init__": after(_name_reward), **trajectories.AGENT,
        },
    },
)  # fmt: skip
