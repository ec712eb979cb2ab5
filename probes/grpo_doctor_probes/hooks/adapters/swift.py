"""ms-swift's GRPO trainer. Its loop is transformers' (see there); this is what GRPO adds to it.

Most of it moved twice: parts of the trainer into `rollout_mixin` with 3.10, all of `swift.trainers.
rlhf_trainer` to `swift.rlhf_trainers` with 4.0. The trainer subclasses TRL's and deletes two of
its methods, so nothing of TRL's is set here. Megatron's trainers have a module of their own.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes.hooks import grpo_trainers
from grpo_doctor_probes.hooks.adapters import swift_megatron, swift_trajectories
from grpo_doctor_probes.hooks.describing import PARSED, plain_settings
from grpo_doctor_probes.hooks.grpo_trainers import LOSS, logprob_span
from grpo_doctor_probes.hooks.spans import inside
from grpo_doctor_probes.hooks.table import Adapter, Hook
from grpo_doctor_probes.hooks.users_code import time_method
from grpo_doctor_probes.hooks.wrapping import Around, after, before

_TRAINER, _TRAINER_3 = (
    "swift.rlhf_trainers.grpo_trainer",
    "swift.trainers.rlhf_trainer.grpo_trainer",
)
_MIXIN, _MIXIN_3 = "swift.rlhf_trainers.rollout_mixin", "swift.trainers.rlhf_trainer.rollout_mixin"
_UTILS, _UTILS_3 = "swift.rlhf_trainers.utils", "swift.trainers.rlhf_trainer.utils"
_CLIENT, _CLIENT_3 = "swift.rlhf_trainers.vllm_client", "swift.trainers.rlhf_trainer.vllm_client"
_LAUNCH, _LAUNCH_3 = "swift.pipelines.train.sft", "swift.llm.train.sft"
_BASE = "swift.trainers.mixin"
_PREPARING, _ENCODE = "rollout/prepare", "rollout/encode"


def _trainer(method: str, span: str, since_4: str | None, until_4: str | None) -> tuple[Hook, ...]:
    """Return a method of the trainer, under both paths of its module."""
    homes = ((_TRAINER, since_4), (_TRAINER_3, until_4))
    owner = "GRPOTrainer"
    return tuple(Hook(path, f"{owner}.{method}", span, since) for path, since in homes if since)


def _moved(method: str, span: str, until_3: str | None, since: str = "3.10-") -> tuple[Hook, ...]:
    """Return a method that was the trainer's, and is the mixin's under two paths of its module."""
    homes = [(_MIXIN, "RolloutTrainerMixin", "4.0-")]
    if not since.startswith("4"):
        homes.append((_MIXIN_3, "RolloutTrainerMixin", f"{since}3.12"))
    if until_3:
        homes.append((_TRAINER_3, "GRPOTrainer", until_3))
    return tuple(
        Hook(module, f"{owner}.{method}", span, versions) for module, owner, versions in homes
    )


def _client(method: str, since_3: str) -> tuple[Hook, ...]:
    """Return what sends weights to a server that `swift rollout` started."""
    return (
        Hook(_CLIENT, f"VLLMClient.{method}", "sync/send", "4.0-"),
        Hook(_CLIENT_3, f"VLLMClient.{method}", "sync/send", since_3),
    )


def _logprobs(module: str, versions: str) -> Hook:
    method = "GRPOTrainer._get_per_token_logps_and_entropies"
    return Hook(module, method, "logprob", versions, span_of=logprob_span)


def _encoding(module: str, versions: str) -> Hook:
    # Engines and data sets encode as well; what prepares a batch also computes log-probs.
    def span_of(*_: Any, **__: Any) -> str | None:
        return _ENCODE if inside(_PREPARING) else None

    return Hook(module, "Template.encode", _ENCODE, versions, span_of=span_of)


_HOOKS = (
    *_trainer("_prepare_inputs", "rollout", "4.0-", "3.8-3.12"),
    *_trainer("_generate_and_score_completions", "rollout", "4.0-4.3", "3.8-3.12"),
    Hook(_MIXIN, "RolloutTrainerMixin._generate_and_score_completions", "rollout", "4.4-"),
    *_moved("_engine_infer", "rollout/generate", "3.8-3.9"),
    *_moved("_preprocess_inputs", "rollout/gather", None, "4.0-"),
    *_moved("_postprocess_rollout_outputs", "rollout/postprocess", "3.8-3.9"),
    *_trainer("_prepare_batch_inputs", _PREPARING, "4.0-", "3.8-3.12"),
    _encoding("swift.template.base", "4.0-"),
    _encoding("swift.llm.template.base", "3.8-3.12"),
    *_moved("_wait_queue", "rollout/wait", "3.8-3.9"),
    *_trainer("_compute_rewards_per_func", "reward", "4.0-", "3.8-3.12"),
    *_trainer("_compute_advantages", "reward/advantages", "4.0-", None),
    *_trainer("_log_rollout", "rollout/gather_texts", "4.4-", None),
    _logprobs(_TRAINER, "4.0-"),
    _logprobs(_TRAINER_3, "3.8-3.12"),
    *_trainer("compute_loss", LOSS, "4.0-", "3.8-3.12"),
    *_moved("_move_model_to_vllm", "sync", "3.8-3.9"),
    *_moved("_collect_state_dict_for_vllm", "sync/gather", None, "4.0-"),
    *_moved("_load_state_dict_to_vllm", "sync/load", None),
    *_client("update_named_param", "3.8-3.12"),
    *_client("update_flattened_params", "3.10-3.12"),
    *_client("update_adapter_flattened_param", "3.10-3.12"),
    *_client("update_adapter_param", "3.11-3.12"),
    *_moved("offload_model", "offload", "3.8-3.9"),
    *_moved("offload_optimizer", "offload", "3.8-3.9"),
    *_moved("load_model", "offload", "3.8-3.9"),
    *_moved("load_optimizer", "offload", "3.8-3.9"),
    Hook(_UTILS, "sleep_vllm_engine", "offload", "4.6-"),
    Hook(_UTILS, "aggressive_empty_cache", "offload/collect", "4.0-"),
    Hook(_UTILS_3, "aggressive_empty_cache", "offload/collect", "3.10-3.12"),
    *_moved("resample_encode_failed_inputs", "dataload/resample", "3.8-3.11", "3.12-"),
    Hook(_BASE, "SwiftMixin._save_checkpoint", "checkpoint", "3.8-"),
    Hook(_BASE, "SwiftMixin._save_flash_checkpoint", "checkpoint", "3.8-"),
    Hook(_BASE, "SwiftMixin._evalscope_eval", "eval", "3.8-"),
)  # fmt: skip


def _time_turns(trainer: Any, *_: Any, **__: Any) -> None:
    scheduler = getattr(trainer, "multi_turn_scheduler", None)
    if scheduler is not None:
        time_method(scheduler, "step", "rollout/tools")


_GRPO = {**grpo_trainers.of_trainer(), **swift_trajectories.TRAINER}
_ROLLOUT: dict[str, Around] = {
    "RolloutTrainerMixin._prepare_scheduler": after(_time_turns), **swift_trajectories.MIXIN,
}  # fmt: skip
_LAUNCHING = {
    "SwiftSft.train": before(lambda launch, *_, **__: PARSED.update(plain_settings(launch.args)))
}
ADAPTER = Adapter(
    "ms-swift",
    (*_HOOKS, *swift_megatron.HOOKS),
    {
        _LAUNCH: _LAUNCHING, _LAUNCH_3: _LAUNCHING, _TRAINER: _GRPO, _TRAINER_3: _GRPO,
        _MIXIN: _ROLLOUT, _MIXIN_3: _ROLLOUT, **swift_megatron.PATCHES,
        **swift_trajectories.PATCHES,
    },
)  # fmt: skip
