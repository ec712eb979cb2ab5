"""OpenRLHF's PPO and GRPO trainers: which function of the controller and its actors is which phase.

The controller carries the steps. It waits in `ray.get` for what others do, so that its host times
are those of the work; rewards are called while samples are generated, in the actors of the engines.
A step begins where samples are generated (`ppo_trainer`) or waited for (`ppo_trainer_async`) and
ends where the next begins: logging, evaluation and checkpoints are part of the step they follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_doctor_probes import metrics, watch_collectives
from grpo_doctor_probes.hooks.adapters import openrlhf_trajectories as trajectories
from grpo_doctor_probes.hooks.describing import describe_run
from grpo_doctor_probes.hooks.spans import STEPS, inside
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

_NAMESPACES = ("Namespace", "SimpleNamespace")


class _Loop:
    """Where the controller of this process is."""

    number = 1  # of the step that is open or begins next
    is_due = True  # whether the next samples begin a step


def resume(states: Any, *_: Any, **__: Any) -> None:
    """A run that resumes from these states continues counting where it was."""
    _Loop.number = int(states["global_step"]) + 1


def begin_if_due(*_: Any, **__: Any) -> None:
    """Where the samples of a step come from: begins a step if one is due."""
    if _Loop.is_due and ROLE.of_this_process() == DRIVER and not inside("eval"):
        _Loop.is_due = False
        STEPS.begin(_Loop.number)


def write_evaluation(logs: Any, *_: Any, **__: Any) -> None:
    """Evaluation's metrics belong to the step that it follows."""
    if isinstance(logs, dict):
        metrics(_Loop.number - 1, logs)


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings under the names of the command line: groups of 0.10.2 and newer with dots."""
    for name, item in vars(value).items():
        if type(item).__name__ in _NAMESPACES:
            yield from flat(item, f"{prefix}{name}.")
        elif item not in (float("inf"), None):  # infinite: never save, never evaluate
            yield f"{prefix}{name}", item


def _prepare(controller: Any, *args: Any, **kwargs: Any) -> None:
    if ROLE.of_this_process() != DRIVER:
        return
    # The trainer of an asynchronous run waits for samples at a queue.
    for queue in (getattr(controller, "rollout_queue", None), *args, *kwargs.values()):
        if hasattr(queue, "get") and hasattr(queue, "put"):
            queue.get = before(begin_if_due)(spanned(queue.get, "rollout/wait"))
            break
    settings = dict(flat(controller.strategy.args))
    nodes = settings.get("actor.num_nodes", settings.get("actor_num_nodes"))
    gpus = settings.get("actor.num_gpus_per_node", settings.get("actor_num_gpus_per_node"))
    ranks = int(nodes) * int(gpus) if nodes and gpus else None
    describe_run("openrlhf", settings, ranks)


def _finish(*_: Any, **__: Any) -> None:
    if _Loop.is_due:
        STEPS.end()
    else:  # the last call of a loader or queue: there was nothing left
        STEPS.drop()


# The controller's loop: it first describes the run, and ends the last step after it.
around_fit = each(before(_prepare), after(_finish))


def _logged(*values: Any, **named: Any) -> tuple[int | None, dict[str, Any]]:
    """Return the step and its metrics; the order of arguments differs from version to version."""
    everything = (*values, *named.values())
    number = next((value for value in everything if type(value) is int), None)
    return number, next((value for value in everything if isinstance(value, dict)), {})


def _write_metrics(_controller: Any, *args: Any, **kwargs: Any) -> None:
    number, logs = _logged(*args, **kwargs)
    if number is not None:
        metrics(number, logs)


def _span_of_logging(controller: Any, *args: Any, **kwargs: Any) -> str | None:
    number, _ = _logged(*args, **kwargs)
    settings = getattr(controller, "args", None)
    every = getattr(getattr(settings, "ckpt", settings), "save_steps", None)
    saves = number is not None and isinstance(every, int) and every > 0 and number % every == 0
    return "checkpoint" if saves else None


def _end_step(_controller: Any, *args: Any, **kwargs: Any) -> None:
    number, _ = _logged(*args, **kwargs)
    if number is not None:
        _Loop.number, _Loop.is_due = number + 1, True


# The last of a step: its metrics are kept, and a checkpoint is a phase if one is due.
around_logging = each(by_arguments(_span_of_logging), before(_write_metrics), after(_end_step))


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
    "SamplesGenerator.generate_samples": before(begin_if_due), **trajectories.SAMPLES,
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
            "PPOTrainer.fit": around_fit,
            "PPOTrainer.evaluate": on_result(write_evaluation),
            "BasePPOTrainer.init_checkpoint_states": on_result(resume),
            "BasePPOTrainer.save_logs_and_checkpoints": around_logging,
            **trajectories.TRAINER,
        },
        _ASYNC: {
            "TrainingActor.__init__": with_role(DRIVER),
            "TrainingActor.fit": around_fit,
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
