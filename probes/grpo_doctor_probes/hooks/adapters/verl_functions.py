"""Functions of verl's classes that are phases, by version; `verl` has what its timers say."""

from __future__ import annotations

from grpo_doctor_probes.hooks.adapters import verl_trajectories
from grpo_doctor_probes.hooks.table import Hook

V1 = "verl.trainer.ppo.v1.trainer_base"
LEGACY = "verl.trainer.ppo.ray_trainer"
REWARD_LOOP = "verl.experimental.reward_loop.reward_loop"
SERVERS = {
    "verl.workers.rollout.vllm_rollout.vllm_async_server": "vLLMHttpServer",
    "verl.workers.rollout.sglang_rollout.async_sglang_server": "SGLangHttpServer",
    "verl.workers.rollout.trtllm_rollout.trtllm_async_server": "TRTLLMHttpServer",
}
_ENGINE_WORKERS = "verl.workers.engine_workers"
_ENGINES = "verl.workers.engine"
_OLD_WORKERS = ("verl.workers.fsdp_workers", "verl.workers.megatron_workers")
ACTORS = (_ENGINE_WORKERS, *_OLD_WORKERS)
_LOGPROBS = ("logprob/old", "logprob/reference", "logprob/values")


def _engine(path: str, name: str, versions: str, loads: str | None = None) -> tuple[Hook, ...]:
    module = f"{_ENGINES}.{path}.transformer_impl"
    return (
        Hook(module, f"{name}.optimizer_step", "optimizer", versions),
        Hook(module, f"{name}.to", "offload", loads or versions),
    )


def _old_workers(module: str) -> tuple[Hook, ...]:
    actor, critic = "ActorRolloutRefWorker", "CriticWorker"
    return (
        Hook(module, f"{actor}.init_model", "init", "0.4-0.7"),
        Hook(module, f"{actor}.generate_sequences", "rollout/generate", "0.4-0.7"),
        Hook(module, f"{actor}.compute_log_prob", "logprob/old", "0.4-0.7"),
        Hook(module, f"{actor}.compute_ref_log_prob", "logprob/reference", "0.4-0.7"),
        Hook(module, f"{actor}.update_actor", "train", "0.4-0.7"),
        Hook(module, f"{actor}.rollout_mode", "sync", "0.6-0.7"),
        Hook(module, f"{actor}.trainer_mode", "sync", "0.6-0.7.0"),
        Hook(module, f"{actor}.save_checkpoint", "checkpoint", "0.4-0.7"),
        Hook(module, f"{critic}.compute_values", "logprob/values", "0.4-0.7"),
        Hook(module, f"{critic}.update_critic", "train/critic", "0.4-0.7"),
        Hook(module, "RewardModelWorker.compute_rm_score", "reward/model", "0.4-0.7.0"),
    )


def _server(module: str, name: str, versions: str) -> tuple[Hook, ...]:
    return (
        Hook(module, f"{name}.generate", "rollout/generate", versions, shared=True),
        Hook(module, f"{name}.wake_up", "offload", versions, shared=True),
        Hook(module, f"{name}.sleep", "offload", versions, shared=True),
    )


_SHARDING = "verl.workers.sharding_manager"
_VLLM, _SGLANG, _TRTLLM = SERVERS.items()
HOOKS = (
    Hook(LEGACY, "RayPPOTrainer._validate", "eval", "0.4-"),
    Hook(V1, "PPOTrainer._validate", "eval", "0.9-"),
    Hook(V1, "PPOTrainer._fetch_one_gen_batch", "dataload", "0.9-"),
    Hook(V1, "PPOTrainer._add_batch_to_generate", "rollout/submit", "0.9-"),
    Hook(_ENGINE_WORKERS, "ActorRolloutRefWorker.init_model", "init", "0.7-"),
    Hook(_ENGINE_WORKERS, "ActorRolloutRefWorker.compute_log_prob", "logprob/old", "0.7-"),
    Hook(
        _ENGINE_WORKERS, "ActorRolloutRefWorker.compute_ref_log_prob", "logprob/reference",
        "0.7-",
    ),
    Hook(_ENGINE_WORKERS, "ActorRolloutRefWorker.update_actor", "train", "0.7-"),
    Hook(_ENGINE_WORKERS, "ActorRolloutRefWorker.update_weights", "sync", "0.7.1-"),
    Hook(_ENGINE_WORKERS, "ActorRolloutRefWorker.save_checkpoint", "checkpoint", "0.7-"),
    Hook(_ENGINE_WORKERS, "TrainingWorker.train_batch", "train/mini_batch", "0.7-"),
    Hook(_ENGINE_WORKERS, "TrainingWorker.infer_batch", "logprob", "0.7-", unless=_LOGPROBS),
    *_engine("fsdp", "FSDPEngine", "0.6-"),
    *_engine("megatron", "MegatronEngine", "0.6-"),
    *_engine("veomni", "VeOmniEngine", "0.7-", "0.7.1-"),
    *_engine("torchtitan", "TorchTitanEngine", "0.7.1-"),
    *_engine("automodel", "AutomodelEngine", "0.8-"),
    *_old_workers(_OLD_WORKERS[0]),
    *_old_workers(_OLD_WORKERS[1]),
    Hook(
        "verl.workers.actor.dp_actor", "DataParallelPPOActor._optimizer_step", "optimizer",
        "0.4-0.7",
    ),
    Hook(f"{_SHARDING}.fsdp_vllm", "FSDPVLLMShardingManager.__enter__", "sync", "0.4-0.6"),
    Hook(f"{_SHARDING}.fsdp_vllm", "FSDPVLLMShardingManager.__exit__", "sync", "0.4-0.6"),
    Hook(f"{_SHARDING}.fsdp_sglang", "FSDPSGLangShardingManager.__enter__", "sync", "0.4-0.6"),
    Hook(f"{_SHARDING}.fsdp_sglang", "FSDPSGLangShardingManager.__exit__", "sync", "0.4-0.6"),
    Hook(REWARD_LOOP, "RewardLoopWorker.compute_score", "reward", "0.7-", shared=True),
    *verl_trajectories.HOOKS,
    # 0.6.0 has them under their later name.
    *_server(_VLLM[0], "vLLMHttpServerBase", "0.6.1-0.7.0"),
    *_server(*_VLLM, "0.7.1-"),
    *_server(*_SGLANG, "0.6-"),
    *_server(*_TRTLLM, "0.8-"),
)  # fmt: skip
