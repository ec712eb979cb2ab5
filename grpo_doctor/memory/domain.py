"""The launches whose memory is modelled, and what of the others is not."""

from __future__ import annotations

from grpo_doctor.launches import Launch
from grpo_doctor.launches.domain import GROUPED, Domain

DOMAIN = Domain(
    ("bundled", "ms-swift", "trl", "verl", "openrlhf", "vllm", "sglang"),
    GROUPED,
    ("train", "rollout server"),
)
_KNOWER = "the memory model"
_ENGINES = ("", "vllm", "sglang")
_STRATEGIES = ("", "fsdp", "fsdp2", "megatron", "full_shard", "full_shard auto_wrap")
_REWARD_MODELS = (
    "reward_pretrain",
    "reward.model_name_or_path",
    "reward_model.enable",
    "reward.reward_model.enable",
    "teacher_model",
    "reward_model",
    "reward_model_name_or_path",
)


def not_modelled(launch: Launch) -> str | None:
    """A sentence that says why the memory of a launch is not estimated; None where it is."""
    outside = DOMAIN.outside(launch, _KNOWER)
    if outside is not None or launch.role != "train":
        return outside
    engine = str(launch.settings.get("rollout.engine") or "")
    if engine not in _ENGINES or _on(launch, "use_lmdeploy"):
        return f"rollouts by {engine or 'LMDeploy'}; {_KNOWER} knows vLLM and SGLang"
    strategy = str(launch.settings.get("parallel.strategy") or "")
    if launch.framework == "verl" and strategy not in _STRATEGIES:
        return f"training with {strategy}; {_KNOWER} knows FSDP and Megatron"
    if _on(launch, "use_ray") or launch.options.get("tuner_backend") == "unsloth":
        return f"ms-swift with Ray groups or unsloth; {_KNOWER} knows neither"
    if any(_on(launch, name) for name in _REWARD_MODELS):
        return (
            f"a reward or teacher model on the GPUs; {_KNOWER} knows policy, reference and engine"
        )
    return None


def _on(launch: Launch, option: str) -> bool:
    return str(launch.options.get(option, "")).lower() not in ("", "false", "none", "null", "[]")
