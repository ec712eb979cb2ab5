"""What the engine takes of a card, sleep and offload: GL029 to GL036."""

from __future__ import annotations

from grpo_doctor.launches.view import Host
from tests.unit.launches.pairs import FOUR, GIB, SERVED, SLEEPS, SWIFT, TRL, VERL, VLLM
from tests.unit.launches.rules.edges.edge import (
    FLAWED,
    OURS,
    ROLLOUT,
    SERVE,
    SERVED_SHARE,
    SHARE,
    SOUND,
    TENSOR,
    Edge,
)

OFFLOADED = (
    """--deepspeed '{{"zero_optimization": {{"stage": {}, "offload_param": """
    """{{"device": "cpu"}}}}}}'"""
)
EXPANDABLE = "PYTORCH_ALLOC_CONF=expandable_segments:True"
EDGES = (
    Edge(
        "GL029", "PYTORCH_CUDA_ALLOC_CONF='a:1, expandable_segments: True' " + TRL + SLEEPS, FLAWED
    ),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, FLAWED),
    Edge("GL029", "PYTORCH_ALLOC_CONF=expandable_segments:False " + TRL + SLEEPS, SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + "--use_vllm --vllm_mode colocate", SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS.replace("colocate", "server"), SOUND),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, SOUND, versions={"vllm": "0.32.0"}),
    Edge("GL029", f"{EXPANDABLE} " + TRL + SLEEPS, FLAWED, versions={"vllm": "0.31.9"}),
    Edge(
        "GL029", f"{EXPANDABLE} " + VLLM + "--sleep_level 1", SOUND, versions={"ms-swift": "3.9.0"}
    ),
    Edge(
        "GL029", f"{EXPANDABLE} " + VLLM + "--sleep_level 1", FLAWED, versions={"ms-swift": "3.8.9"}
    ),
    Edge("GL029", f"{EXPANDABLE} " + VERL, SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0.8", SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0.81", FLAWED),
    Edge("GL030", VLLM, FLAWED),
    Edge("GL030", VLLM + f"{SHARE} 0.9 --sleep_level 1", SOUND),
    Edge("GL030", SERVED + f"{SHARE} 0.9", SOUND),
    Edge(
        "GL030",
        VERL + "actor_rollout_ref.rollout.gpu_memory_utilization=0.9 "
        "actor_rollout_ref.rollout.free_cache_engine=False",
        SOUND,
    ),
    Edge("GL030", OURS + f"--use_vllm true --vllm_mode colocate {SHARE} 0.9", SOUND),
    Edge("GL030", SERVE + f"{SERVED_SHARE} 0.95", SOUND),
    Edge("GL030", VLLM + f"{SHARE} 0", SOUND),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, Host(card_bytes=35_031_836_000)),
    Edge("GL031", VLLM + f"{SHARE} 0.5", FLAWED, Host(card_bytes=35_031_835_000)),
    Edge("GL031", VLLM + f"{SHARE} 0.5", FLAWED, Host(card_bytes=16 * GIB)),
    Edge("GL031", VLLM + f"{SHARE} 0.5 {TENSOR} 4", FLAWED, Host(card_bytes=8 * GIB)),
    Edge(
        "GL031",
        VLLM + f"{SHARE} 0.5 {TENSOR} 4 --vllm_pipeline_parallel_size 2",
        FLAWED,
        Host(card_bytes=3 * GIB),
    ),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, Host()),
    Edge("GL031", VLLM + f"{SHARE} 0.5", SOUND, FOUR, model=None),
    Edge("GL031", VLLM + f"{SHARE} 0", SOUND, FOUR),
    Edge("GL031", SERVED + f"{SHARE} 0.4", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4 --quantization awq", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4 --kv-cache-memory-bytes 9", SOUND, FOUR),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, Host(card_bytes=18_439_000_000)),
    Edge("GL031", SERVE + f"{SERVED_SHARE} 0.4", FLAWED, Host(card_bytes=18_430_000_000)),
    Edge("GL032", SERVED + "--offload_optimizer true", FLAWED),
    Edge("GL032", SERVED + "--offload_optimizer true --offload_model true", FLAWED),
    Edge(
        "GL032",
        VLLM + "--offload_optimizer true --offload_model true --deepspeed zero3_offload",
        FLAWED,
    ),
    Edge("GL032", VLLM + "--offload_model true --deepspeed zero3_offload", SOUND),
    Edge("GL032", VLLM + "--offload_optimizer true --deepspeed zero3", SOUND),
    Edge("GL032", SWIFT + "--offload_optimizer true", FLAWED),
    Edge("GL032", SWIFT + "--offload_optimizer false", SOUND),
    Edge("GL032", OURS + "--offload_optimizer true --use_vllm false", SOUND),
    Edge("GL032", OURS + "--offload_optimizer true --use_vllm true --vllm_mode server", FLAWED),
    Edge("GL032", VERL + "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", SOUND),
    Edge("GL033", SERVED + "--sleep_level 1", FLAWED),
    Edge("GL033", VLLM + "--sleep_level 1", SOUND),
    Edge("GL033", VLLM + "--sleep_level 1 --async_generate true", FLAWED),
    Edge("GL033", SERVED + "--sleep_level 0", SOUND),
    Edge("GL033", TRL + SLEEPS.replace("colocate", "server"), FLAWED),
    Edge("GL033", OURS + "--use_vllm true --vllm_mode server --sleep_level 1", SOUND),
    Edge("GL034", SWIFT + OFFLOADED.format(1), FLAWED),
    Edge("GL034", SWIFT + OFFLOADED.format(3), SOUND),
    Edge("GL034", SWIFT + "--deepspeed zero2", SOUND),
    Edge("GL034", SWIFT, SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 17 --vllm_max_lora_rank 16", FLAWED),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 16 --vllm_max_lora_rank 16", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --tuner_type full --lora_rank 64", FLAWED),
    Edge("GL036", VLLM + "--vllm_enable_lora false --tuner_type full", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 0 --vllm_max_lora_rank 16", SOUND),
    Edge("GL036", VLLM + "--vllm_enable_lora true --lora_rank 17 --vllm_max_lora_rank 0", SOUND),
    Edge("GL036", ROLLOUT + "--vllm_enable_lora true --tuner_type full", SOUND),
)
