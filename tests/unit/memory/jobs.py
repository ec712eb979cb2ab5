"""Setups of jobs that users told of."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.memory import RolloutEngine, Setup, card_bytes, model_shape

QWEN_VL = model_shape("Qwen/Qwen2.5-VL-7B-Instruct")
QWEN = model_shape("Qwen/Qwen2-7B-Instruct")
QWEN_72B = model_shape("Qwen/Qwen2.5-72B-Instruct")

VISION = Setup(
    QWEN_VL,
    card_bytes("A800-80G"),
    ranks=2,
    engine="deepspeed",
    zero_stage=2,
    method="lora",
    framework="ms-swift",
    version="3.2.0",
    micro_batch=2,
    prompt_tokens=512 + 768,
    completion_tokens=1536,
    max_pixels=602_112,
    loss="bfloat16",
    whole_row_logits=True,
    rollout="colocate",
    rollout_engine=RolloutEngine(version="0.8", memory_share=0.6, sleep_level=1),
    offload_weights=True,
    offload_optimizer=True,
)
"""https://github.com/modelscope/ms-swift/issues/3426"""

TEXT = Setup(
    QWEN,
    card_bytes("3090"),
    ranks=4,
    engine="deepspeed",
    zero_stage=2,
    method="lora",
    framework="ms-swift",
    version="3.4.0",
    micro_batch=2,
    prompt_tokens=2048,
    completion_tokens=1024,
    loss="bfloat16",
    whole_row_logits=True,
    rollout="colocate",
    rollout_engine=RolloutEngine(version="0.8", memory_share=0.8, max_model_len=3072),
)
"""https://github.com/modelscope/ms-swift/issues/3361; vLLM beside the trainer."""

TEXT_OWN_CARD = replace(TEXT, ranks=3, rollout="server")
"""The same, with vLLM on the fourth card, where that version puts it."""

LARGE = Setup(
    QWEN_72B,
    card_bytes("A100-80G"),
    ranks=8,
    engine="deepspeed",
    zero_stage=3,
    method="lora",
    framework="ms-swift",
    micro_batch=1,
    prompt_tokens=2048,
    completion_tokens=2048,
    loss="bfloat16",
    rollout="colocate",
    rollout_engine=RolloutEngine(
        version="0.8", memory_share=0.5, tensor_parallel=4, sleep_level=1, max_model_len=8192
    ),
    offload_weights=True,
    offload_optimizer=True,
)
