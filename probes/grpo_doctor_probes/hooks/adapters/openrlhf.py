"""OpenRLHF's PPO and GRPO trainers: which function of the controller and its actors is which phase.

The controller carries the steps. It waits in `ray.get` for what others do, so that its host times
are those of the work; rewards are called while samples are generated, in the actors of the engines.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from grpo_doctor_probes import watch_collectives
from grpo_doctor_probes.hooks.adapters import openrlhf_steps as steps
from grpo_doctor_probes.hooks.adapters import openrlhf_trajectories as trajectories
from grpo_doctor_probes.hooks.roles import with_role
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import name_of, with_span
from grpo_doctor_probes.hooks.wrapping import (
    after,
    before,
    by_arguments,
    in_state,
    on_result,
    replace,
    replacing,
    spanned,
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
_REWARD = "openrlhf.utils.remote_rm_utils"

_GENERATOR = "rollout-loop"
# The classes of the models' actors; those of the second line are 0.8.0's.
_ROLES = {
    "PolicyModelActor": "actor", "CriticModelActor": "critic", "RewardModelActor": "reward",
    "ActorModelRayActor": "actor", "CriticModelRayActor": "critic", "RewardModelRayActor": "reward",
}  # fmt: skip
_CALLS = {
    "sleep": "offload", "wake_up": "offload", "pause_generation": "sync/pause",
    "resume_generation": "sync/resume",
}  # fmt: skip


def _patch_trainer(module: ModuleType) -> None:
    replace(module, "PPOTrainer.__init__", with_role(DRIVER))
    replace(module, "PPOTrainer.fit", steps.around_fit)
    replace(module, "PPOTrainer.evaluate", on_result(steps.write_evaluation))
    replace(module, "BasePPOTrainer.init_checkpoint_states", on_result(steps.resume))
    replace(module, "BasePPOTrainer.save_logs_and_checkpoints", steps.around_logging)
    replacing(trajectories.TRAINER)(module)


def _patch_async(module: ModuleType) -> None:
    replace(module, "TrainingActor.__init__", with_role(DRIVER))
    replace(module, "TrainingActor.fit", steps.around_fit)
    replace(module, "GenerateSamplesActor.__init__", with_role(_GENERATOR))
    replace(module, "GenerateSamplesActor.fit", before(_name_wait))


def _patch_launcher(module: ModuleType) -> None:
    for base in ("BaseModelActor", "BasePPORole"):
        replace(module, f"{base}._setup_distributed", before(_take_role))
        replace(module, f"{base}._setup_distributed", after(lambda *_, **__: watch_collectives()))


def _patch_engine(module: ModuleType) -> None:
    for name in ("RolloutRayActor", "LLMRayActor"):
        replace(module, f"{name}.__init__", with_role("rollout"))
    replacing(trajectories.ENGINE)(module)
    replace(module, "batch_vllm_engine_call", by_arguments(_span_of_call))


def _patch_agent(module: ModuleType) -> None:
    replace(module, "SingleTurnAgentExecutor.__init__", after(_name_reward))
    replacing(trajectories.AGENT)(module)


def _take_role(actor: Any, *_: Any, **__: Any) -> None:
    ROLE.take(_ROLES.get(type(actor).__name__, "reference"))


def _name_wait(generator: Any, *_: Any, **__: Any) -> None:
    """Generation ahead of the trainer waits for a place in the queue."""
    slots = getattr(generator, "rollout_slots", None)
    if slots is not None:
        slots.get = spanned(slots.get, "rollout/queue")


def _span_of_call(_engines: Any, method_name: str, *_: Any, **__: Any) -> str | None:
    return _CALLS.get(method_name)


def _name_reward(executor: Any, *_: Any, **__: Any) -> None:
    if executor.reward_func is not None:
        name = name_of(executor.reward_func)
        spanned_func = with_span(executor.reward_func, name)
        executor.reward_func = in_state(f"{REWARD}/{name}")(spanned_func)


_patch_samples = replacing({
    "SamplesGenerator.generate_samples": before(steps.begin_if_due), **trajectories.SAMPLES,
})  # fmt: skip
ADAPTER = Adapter(
    "openrlhf",
    (
        Hook(_SAMPLES, "SamplesGenerator.generate_samples", "rollout", "0.9.9-"),
        Hook(_EXPERIENCE, "SamplesGenerator.generate_samples", "rollout", "0.8-0.9.8"),
        Hook(_SAMPLES, "_collect_prompt_batch", "dataload", "0.9.9-"),
        Hook(_EXPERIENCE, "RemoteExperienceMaker.make_experience_batch", "logprob", "0.8.1-"),
        Hook(_EXPERIENCE, "RemoteExperienceMaker.make_experience_list", "logprob", "0.8.0-0.8.0"),
        Hook(_TRAINER, "BasePPOTrainer.train_step", "train", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.ppo_train", "train/update", "0.8-"),
        Hook(_TRAINER, "BasePPOTrainer.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer._broadcast_to_vllm", "sync", "0.8-0.9.0"),
        Hook(_ASYNC, "TrainingActor.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_ASYNC, "TrainingActor._broadcast_to_vllm", "sync", "0.8.1-0.9.0"),
        Hook(_TRAINER, "BasePPOTrainer.save_best_checkpoint", "checkpoint", "0.9.9-"),
        Hook(_TRAINER, "PPOTrainer.evaluate", "eval", "0.9.1-"),
        Hook(_TRAINER, "BasePPOTrainer.evaluate", "eval", "0.8-0.9.0"),
        Hook(_ASYNC, "GenerateSamplesActor._run_eval", "eval", "0.9.7-"),
        # In the processes of the models.
        Hook(_LAUNCHER, "ReferenceModelActor.forward", "logprob/reference", "0.8.4-"),
        Hook(_LAUNCHER, "ReferenceModelRayActor.forward", "logprob/reference", "0.8.0-0.8.2"),
        Hook(_LAUNCHER, "RewardModelActor.forward", "reward/model", "0.8.4-"),
        Hook(_LAUNCHER, "RewardModelRayActor.forward", "reward/model", "0.8.0-0.8.2"),
        Hook(_ACTOR, "PolicyModelActor.forward", "logprob/old", "0.8.4-"),
        Hook(_ACTOR, "ActorModelRayActor.forward", "logprob/old", "0.8.0-0.8.2"),
        Hook(_ACTOR, "ActorPPOTrainer.ppo_train", "train", "0.8-"),
        Hook(_ACTOR, "ActorPPOTrainer.training_step", "train/micro_batch", "0.8-"),
        Hook(_ACTOR, "ActorPPOTrainer.broadcast_to_vllm", "sync", "0.9.1-"),
        Hook(_ACTOR, "ActorPPOTrainer._broadcast_to_vllm", "sync", "0.8-0.9.0"),
        *(
            Hook(_ACTOR, f"{actor}.{method}", span, versions)
            for actor, versions in (
                ("PolicyModelActor", "0.8.4-"), ("ActorModelRayActor", "0.8.0-0.8.2"),
            )
            for method, span in (
                ("reload_states", "offload"), ("offload_states", "offload"),
                ("save_checkpoint", "checkpoint"), ("save_model", "checkpoint"),
            )
        ),
        Hook(_CRITIC, "CriticModelActor.forward", "logprob/values", "0.8.4-"),
        Hook(_CRITIC, "CriticPPOTrainer.ppo_train", "train", "0.8-"),
        Hook(_CRITIC, "CriticPPOTrainer.training_step", "train/micro_batch", "0.8-"),
        Hook(_REWARD, "RemoteRewardModel.get_rewards", "reward", "0.8.1-0.9.0"),
        *trajectories.HOOKS,
    ),
    {
        _TRAINER: _patch_trainer, _ASYNC: _patch_async, _SAMPLES: _patch_samples,
        _EXPERIENCE: _patch_samples, _LAUNCHER: _patch_launcher, _ENGINE: _patch_engine,
        _AGENT: _patch_agent,
        f"{_ENGINE}_async": replacing(trajectories.ENGINE),  # until 0.9.0
        _REWARD: replacing({"RemoteRewardModel.__init__": with_role("reward")}),
    },
)  # fmt: skip
