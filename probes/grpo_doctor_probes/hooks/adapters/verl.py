"""verl: a driver carries the steps, Ray actors of other roles do the work.

The driver's phases are those of verl's own timers, whose names all its trainers share:
`marked_timer` of `verl.utils.profiler` (`verl.utils.debug` in 0.4.1, the trainer's own `_timer` in
0.4.0), replaced before any trainer takes it by name. They end in `ray.get`, so they are as long as
the work is. Phases of other processes are functions of verl's classes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from grpo_doctor_probes import metrics, watch_collectives
from grpo_doctor_probes.hooks.adapters import verl_async, verl_trajectories
from grpo_doctor_probes.hooks.describing import describe_run
from grpo_doctor_probes.hooks.spans import STEPS, HookedSpan, SharedSpan, timed_iterator
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import name_of
from grpo_doctor_probes.hooks.wrapping import (
    Around,
    after,
    before,
    each,
    shared,
    with_gpu_times,
    with_role,
)
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.rundir import DRIVER
from grpo_doctor_probes.record.sidecar import ROLE

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


_STEP, _GENERATION = "step", "gen"
_TIMED, _LOADS = "__grpo_doctor_timed__", "__grpo_doctor_loads__"
# verl's timers that are phases, by their names in `timing_s/*`.
_TIMERS = {
    "gen": "rollout", "gen_max": "rollout",
    "wait_for_enough_samples": "rollout/wait", "switch_wait": "rollout/wait",
    "reward": "reward", "adv": "reward/advantages",
    "old_log_prob": "logprob/old", "ref": "logprob/reference", "values": "logprob/values",
    "update_actor": "train", "update_critic": "train/critic",
    "update_weights": "sync", "sync_rollout_weights": "sync", "timing_s/param_sync": "sync",
    "switch_to_trainer": "sync/switch", "switch_to_rollout": "sync/switch", "reshard": "sync",
    "save_checkpoint": "checkpoint", "testing": "eval", "rollouter/validate_time": "eval",
}  # fmt: skip
# Timers of agent loops: coroutines side by side in one thread.
_LOOP_TIMERS = {
    "generate_sequences": "rollout/generate",
    "tool_calls": "rollout/tools",
    "compute_score": "reward/score",
}
_AGENT_LOOP = "verl.experimental.agent_loop.agent_loop"


def _around_timer(timer: Callable[..., Any]) -> Callable[..., Any]:
    if hasattr(timer, _TIMED):  # one module has them of another
        return timer

    def wrapper(name: str, *args: Any, **kwargs: Any) -> Any:
        phase, loop_phase = _TIMERS.get(name), _LOOP_TIMERS.get(name)
        if name in (_STEP, _GENERATION):
            # Every trainer's class has the number, and recipes have classes of their own.
            trainer = sys._getframe(1).f_locals.get("self")  # noqa: SLF001
            if name == _STEP:
                quietly(_begin_step, trainer)
            elif verl_async.waits_for_samples(trainer):
                phase = verl_async.WAIT
        inner = timer(name, *args, **kwargs)
        if phase is not None:
            return _within(HookedSpan(phase), inner)
        return inner if loop_phase is None else _within(SharedSpan(loop_phase), inner)

    setattr(wrapper, _TIMED, True)
    return wrapper


@contextlib.contextmanager
def _within(span: Any, timer: Any) -> Iterator[Any]:
    with span, timer as value:
        yield value


def _begin_step(trainer: Any) -> None:
    number = getattr(trainer, "global_steps", None)
    if number is not None:
        ROLE.take(DRIVER)
        STEPS.begin(number)


def _around_start(start: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A trainer's class that only rolls out makes its workers in the same way.
        ROLE.take("rollouter" if "Rollouter" in type(self).__name__ else DRIVER)
        with HookedSpan("init"):
            return start(self, *args, **kwargs)

    return wrapper


def _time_loader(trainer: Any, *_: Any, **__: Any) -> None:
    kind = type(trainer.train_dataloader)
    if not hasattr(kind.__iter__, _LOADS):
        kind.__iter__ = _around_iter(kind.__iter__)


def _around_iter(begin: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(begin)
    def batches(self: Any) -> Iterator[Any]:
        return timed_iterator(begin(self))

    setattr(batches, _LOADS, True)
    return batches


def _describe(_tracking: Any, *args: Any, **kwargs: Any) -> None:
    config = kwargs.get("config") or (args[3] if len(args) > 3 else None)
    if not isinstance(config, dict) or "actor_rollout_ref" not in config:
        return  # of supervised fine-tuning
    ROLE.take(DRIVER)
    trainer = config.get("trainer") or {}
    ranks = int(trainer.get("nnodes") or 1) * int(trainer.get("n_gpus_per_node") or 1)
    describe_run("verl", config, ranks)


def _write_metrics(_tracking: Any, data: Any, step: Any, *_: Any, **__: Any) -> None:
    if ROLE.of_this_process() == DRIVER:
        metrics(step, data)


def _around_custom_reward(load: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(config: Any, *args: Any, **kwargs: Any) -> Any:
        return _with_span(load(config, *args, **kwargs), config)

    return wrapper


def _with_span(function: Any, config: Any) -> Any:
    """Return the user's function as `reward/<its name>`, within what verl has put around it."""
    if isinstance(function, functools.partial) and function.args and callable(function.args[0]):
        inner, *args = function.args
        inner = _with_span(inner, config)
        return functools.partial(function.func, inner, *args, **function.keywords)
    if not hasattr(function, "__code__"):
        return function
    return shared(f"reward/{_configured_name(config) or name_of(function)}")(function)


def _configured_name(config: Any) -> Any:
    """Until 0.6 verl's own wrapper has a name of its own; 0.8 has moved the section."""
    try:
        section = (config.get("reward") or config).get("custom_reward_function") or {}
        return section.get("name")
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        return None


_PATCH_TIMERS: dict[str, Around] = dict.fromkeys(
    ("marked_timer", "simple_timer", "_timer"), _around_timer
)
ADAPTER = Adapter(
    "verl",
    (*HOOKS, *verl_async.HOOKS),
    {
        "verl.utils.profiler": _PATCH_TIMERS,
        "verl.utils.debug": _PATCH_TIMERS,
        # The process that makes the workers has the steps.
        LEGACY: {
            **_PATCH_TIMERS, "RayPPOTrainer.init_workers": _around_start,
            "RayPPOTrainer.fit": each(before(_time_loader), verl_async.until_last_step),
        },
        V1: {"PPOTrainer.init": _around_start, "PPOTrainer.fit": verl_async.until_last_step},
        verl_async.SEPARATION: {
            "SeparateRayPPOTrainer.init_workers": _around_start,
            "SeparateRayPPOTrainer.fit": verl_async.until_last_step,
        },
        "verl.utils.tracking": {
            "Tracking.__init__": before(_describe), "Tracking.log": before(_write_metrics),
        },
        "verl.single_controller.base.worker": {
            "Worker.__init__": each(
                with_role("actor"), after(lambda *_, **__: watch_collectives())
            ),
        },
        "verl.trainer.ppo.reward": {"get_custom_reward_fn": _around_custom_reward},
        _AGENT_LOOP: {
            **{
                f"{owner}.__init__": with_role("agent")
                for owner in ("AgentLoopWorker", "AgentLoopWorkerBase")
            },
            **verl_trajectories.WORKER,
        },
        REWARD_LOOP: {"RewardLoopWorker.__init__": with_role("reward")},
        **{
            module: {
                f"ActorRolloutRefWorker.{method}": with_gpu_times
                for method in ("compute_log_prob", "compute_ref_log_prob", "update_actor")
            }
            for module in ACTORS
        },
        **verl_async.PATCHES,
        **verl_trajectories.PATCHES,
        **{
            module: {
                f"{name}.__init__": with_role("rollout"),
                **verl_trajectories.PATCHES.get(module, {}),
            }
            for module, name in SERVERS.items()
        },
    },
)  # fmt: skip
