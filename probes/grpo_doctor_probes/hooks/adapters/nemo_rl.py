"""NeMo-RL: a driver carries the steps by its own timer, Ray actors train and generate.

The driver's labels end in `ray.get`, so they are as long as the work is. An asynchronous trainer
that finds too few samples begins its label `total_step_time` again: a step ends with the timer's
`reset`, which follows each.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from grpo_doctor_probes import metrics
from grpo_doctor_probes.hooks.describing import describe_run
from grpo_doctor_probes.hooks.spans import STEPS, TimerSpans
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.wrapping import after, before, with_role
from grpo_doctor_probes.record.rundir import DRIVER
from grpo_doctor_probes.record.sidecar import ROLE

_STEP, _START, _VALIDATION = "total_step_time", "init/total", "total_validation_time"
_LABELS = {
    "data_processing": "dataload",
    "prepare_for_generation": "sync", "prepare_for_generation/total": "sync",
    "prepare_for_generation/transfer_and_update_weights": "sync/transfer",
    "generation": "rollout", "exposed_generation": "rollout/wait",
    "reward_calculation": "reward", "advantage_calculation": "reward/advantages",
    "policy_and_reference_logprobs": "logprob",
    "logprob_inference_prep": "offload", "training_prep": "offload",
    "offload_before_refit": "offload",
    "policy_training": "train", "weight_sync": "sync", "checkpointing": "checkpoint",
    _VALIDATION: "eval", _START: "init",
}  # fmt: skip
_WORKERS = "nemo_rl.models.policy.workers"
_POLICIES = {
    f"{_WORKERS}.dtensor_policy_worker": "DTensorPolicyWorkerImpl",
    f"{_WORKERS}.dtensor_policy_worker_v2": "DTensorPolicyWorkerV2Impl",
    f"{_WORKERS}.megatron_policy_worker": "MegatronPolicyWorkerImpl",
}
_ENGINES = {
    "nemo_rl.models.generation.vllm.vllm_worker": "BaseVllmGenerationWorker",
    "nemo_rl.models.generation.vllm.vllm_worker_async": "VllmAsyncGenerationWorkerImpl",
}
_METHODS = {
    "train": "train", "get_logprobs": "logprob", "prepare_for_lp_inference": "offload",
    "prepare_for_training": "offload", "offload_before_refit": "offload",
    "offload_after_refit": "offload", "stream_weights_via_ipc_zmq": "sync",
    "broadcast_weights_for_collective": "sync", "save_checkpoint": "checkpoint",
}  # fmt: skip


class _Driver:
    """The timer of the training loop. Others are of rollouts, validations and environments."""

    timer: Any = None
    spans = TimerSpans(_LABELS.get)
    in_step = False
    steps = 0


def _begin(timer: Any, label: str, *_: Any, **__: Any) -> None:
    if label in (_STEP, _START) and _Driver.timer is not timer:
        ROLE.take(DRIVER)
        _Driver.timer, _Driver.in_step = timer, False
    if label == _STEP and not _Driver.in_step and _Driver.timer is timer:
        _Driver.in_step, _Driver.steps = True, _step_of_caller() or _Driver.steps + 1
        STEPS.begin(_Driver.steps)
    if _is_drivers(timer, label):
        _Driver.spans.begin(label)


def _is_drivers(timer: Any, label: str) -> bool:
    return _Driver.timer is timer or label == _VALIDATION  # which has a timer of its own


def _step_of_caller() -> int | None:
    """The loop's own number, which a resumed run does not begin at 1."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    for _ in range(12):
        if frame is None:
            return None
        number = frame.f_locals.get("total_steps", frame.f_locals.get("step"))
        if isinstance(number, int) and "nemo_rl" in frame.f_globals.get("__name__", ""):
            return number + 1
        frame = frame.f_back
    return None


def _end(timer: Any, label: str, *_: Any, **__: Any) -> None:
    if _is_drivers(timer, label):
        _Driver.spans.end(label)


def _reset(timer: Any, label: Any = None, *_: Any, **__: Any) -> None:
    if label is None and _Driver.timer is timer and _Driver.in_step:
        _Driver.in_step = False
        STEPS.end()


def _write_metrics(
    _logger: Any, values: Any, step: Any, prefix: Any = "", *_: Any, **__: Any
) -> None:
    if ROLE.of_this_process() == DRIVER and prefix in ("train", "validation"):
        named = {f"{prefix}/{name}": value for name, value in dict(values).items()}
        metrics(int(step), named)


def _describe(_logger: Any, parameters: Any, *_: Any, **__: Any) -> None:
    dump = getattr(parameters, "model_dump", None)
    settings = dump() if callable(dump) else dict(parameters)
    cluster = settings.get("cluster") or {}
    ranks = int(cluster.get("num_nodes") or 1) * int(cluster.get("gpus_per_node") or 1)
    ROLE.take(DRIVER)
    describe_run("nemo-rl", settings, ranks)


ADAPTER = Adapter(
    "nemo-rl",
    tuple(
        Hook(module, f"{owner}.{method}", span, "0.5-")
        for module, owner in _POLICIES.items()
        for method, span in _METHODS.items()
    ),
    {
        "nemo_rl.utils.timer": {
            "Timer.start": before(_begin), "Timer.stop": before(_end), "Timer.reset": after(_reset),
        },
        "nemo_rl.utils.logger": {
            "Logger.log_metrics": before(_write_metrics),
            "Logger.log_hyperparams": before(_describe),
        },
        **{
            module: {f"{owner}.__init__": with_role(role)}
            for role, owners in (("actor", _POLICIES), ("rollout", _ENGINES))
            for module, owner in owners.items()
        },
    },
)  # fmt: skip
