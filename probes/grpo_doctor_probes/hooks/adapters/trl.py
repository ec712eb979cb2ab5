"""TRL's GRPOTrainer. Its loop is transformers' (see there); this is what GRPO adds to it.

`_prepare_inputs` generates for several steps at once, inside the first micro-batch's
`training_step`: all that it does is the phase `rollout`, but for parts with names of their own.
The forward pass of the loss uses the same function as the log-probs of old and reference policy.
"""

from __future__ import annotations

from grpo_doctor_probes.hooks import grpo_trainers
from grpo_doctor_probes.hooks.adapters import trl_async
from grpo_doctor_probes.hooks.adapters.trl_batch_trajectories import ENGINE, TRAINER
from grpo_doctor_probes.hooks.grpo_trainers import LOSS, logprob_span
from grpo_doctor_probes.hooks.table import Adapter, Hook

_TRAINER = "trl.trainer.grpo_trainer"
_VLLM = "trl.generation.vllm_generation"
_CLIENT = "trl.generation.vllm_client"
_OLD_CLIENT = "trl.extras.vllm_client"


def of_trainer(module: str, owner: str) -> tuple[Hook, ...]:
    """Return the hooks of the trainer, or of a copy of it elsewhere under another name."""
    return (
        Hook(module, f"{owner}._prepare_inputs", "rollout", "0.14-"),
        Hook(module, f"{owner}._generate_and_score_completions", "rollout", "0.16-"),
        Hook(module, f"{owner}._tokenize_prompts", "rollout/encode", "0.29-"),
        Hook(module, f"{owner}._generate", "rollout/generate", "0.24-"),
        Hook(module, f"{owner}._generate_single_turn", "rollout/generate", "0.25-"),
        Hook(module, f"{owner}._tool_call_loop", "rollout/tools", "0.26-"),
        Hook(module, f"{owner}._calculate_rewards", "reward", "0.19-"),
        Hook(
            module, f"{owner}._get_per_token_logps_and_entropies", "logprob", "0.20-",
            span_of=logprob_span,
        ),
        Hook(
            module, f"{owner}._get_per_token_logps", "logprob", "0.15-0.19",
            span_of=logprob_span,
        ),
        Hook(module, f"{owner}.compute_loss", LOSS, "0.14-"),
        Hook(module, f"{owner}._move_model_to_vllm", "sync", "0.15-0.27"),
    )  # fmt: skip


ADAPTER = Adapter(
    "trl",
    (
        *of_trainer(_TRAINER, "GRPOTrainer"),
        # The first rank writes a model card, before transformers' own.
        Hook(_TRAINER, "GRPOTrainer._save_checkpoint", "checkpoint", "0.19-"),
        Hook(_VLLM, "VLLMGeneration.sync_weights", "sync", "0.28-"),
        Hook(_VLLM, "VLLMGeneration.generate", "rollout/generate", "0.28-"),
        Hook(_VLLM, "VLLMGeneration._init_vllm", "init", "0.28-"),
        Hook(_CLIENT, "VLLMClient.generate", "rollout/generate", "0.28-"),
        Hook(_OLD_CLIENT, "VLLMClient.generate", "rollout/generate", "0.16-0.27"),
        *trl_async.HOOKS,
    ),
    {_TRAINER: {**grpo_trainers.of_trainer(), **TRAINER}, _VLLM: ENGINE, **trl_async.PATCHES},
)  # fmt: skip
