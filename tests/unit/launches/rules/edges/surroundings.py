"""verl since 0.6, the disk, the host, and the script itself: GL050 to GL063."""

from __future__ import annotations

from grpo_doctor.launches.view import Host, ModelFacts
from tests.unit.launches.pairs import (
    GIB,
    MEGATRON,
    OPENRLHF,
    POOL,
    QWEN_7B,
    REWARDS,
    SWIFT,
    TRL,
    VERL,
    VLLM,
)
from tests.unit.launches.rules.edges.edge import (
    FLAWED,
    GROUP,
    GRPO,
    ROLLOUT,
    SHARE,
    SOUND,
    ULYSSES,
    UNPADDED,
    Edge,
)

FULL = VLLM + "--tuner_type full "
NAMELESS = VERL.replace("actor_rollout_ref.rollout.name=vllm ", "")
ADVANTAGE = VERL.replace("algorithm.adv_estimator=grpo ", "")
MODE = "actor_rollout_ref.rollout.mode="
CHECKPOINT = 14 * QWEN_7B.parameters
EDGES = (
    Edge("GL050", NAMELESS, FLAWED, versions={"verl": "0.6.0"}),
    Edge("GL050", NAMELESS, SOUND, versions={"verl": "0.5.9"}),
    Edge("GL050", VERL, SOUND),
    Edge("GL050", NAMELESS.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL050", NAMELESS + "--config-path own --config-name mine", SOUND),
    Edge("GL051", ADVANTAGE + f"{GROUP}2", FLAWED),
    Edge("GL051", ADVANTAGE + f"{GROUP}1", SOUND),
    Edge("GL051", ADVANTAGE + f"{GROUP}2 critic.model.path=x", SOUND),
    Edge("GL051", VERL, SOUND),
    Edge("GL051", ADVANTAGE.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL051", ADVANTAGE + "--config-path own --config-name mine", SOUND),
    Edge("GL052", VERL + f"{MODE}sync", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL052", VERL + f"{MODE}sync", SOUND, versions={"verl": "0.6.9"}),
    Edge("GL052", VERL, SOUND),
    Edge("GL053", VERL + ULYSSES + f"2 {UNPADDED}False", FLAWED),
    Edge("GL053", VERL + ULYSSES + f"1 {UNPADDED}False", SOUND),
    Edge("GL053", VERL + ULYSSES + f"2 {UNPADDED}True", SOUND),
    Edge("GL053", SWIFT + "--sequence_parallel_size 2", SOUND),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=2 * CHECKPOINT - 1)),
    Edge("GL054", FULL, SOUND, Host(free_disk_bytes=2 * CHECKPOINT)),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=CHECKPOINT - 1)),
    Edge("GL054", FULL, FLAWED, Host(free_disk_bytes=CHECKPOINT)),
    Edge("GL054", FULL + "--save_total_limit 1", FLAWED, Host(free_disk_bytes=2 * CHECKPOINT - 1)),
    Edge("GL054", FULL + "--save_total_limit 2", FLAWED, Host(free_disk_bytes=3 * CHECKPOINT - 1)),
    Edge("GL054", FULL + "--save_total_limit 2", SOUND, Host(free_disk_bytes=3 * CHECKPOINT)),
    Edge(
        "GL054",
        FULL + "--save_only_model true",
        FLAWED,
        Host(free_disk_bytes=2 * CHECKPOINT // 7 - 1),
    ),
    Edge(
        "GL054", FULL + "--save_only_model true", SOUND, Host(free_disk_bytes=2 * CHECKPOINT // 7)
    ),
    Edge("GL054", FULL + "--save_steps 0", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", FULL + "--save_steps -1", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", VLLM + "--tuner_type lora", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL054", FULL, SOUND, Host()),
    Edge("GL054", FULL, SOUND, Host(free_disk_bytes=1000), model=None),
    Edge("GL054", ROLLOUT + "--tuner_type full", SOUND, Host(free_disk_bytes=1000)),
    Edge("GL055", FULL, FLAWED),
    Edge("GL055", FULL + "--save_total_limit 2", SOUND),
    Edge("GL055", FULL + "--save_only_model true", SOUND),
    Edge("GL055", FULL + "--save_steps 0", SOUND),
    Edge("GL055", FULL, FLAWED, model=ModelFacts(8, 8, 8, 2_142_857_143)),
    Edge("GL055", FULL, SOUND, model=ModelFacts(8, 8, 8, 2_142_857_142)),
    Edge("GL055", FULL, SOUND, model=None),
    Edge("GL055", VLLM + "--tuner_type lora", SOUND),
    Edge("GL055", VERL + "trainer.save_freq=20", FLAWED),
    Edge("GL055", VERL + "trainer.save_freq=-1", SOUND),
    Edge("GL055", OPENRLHF + "--ckpt.save_steps 10", SOUND),
    Edge("GL056", VLLM, FLAWED, Host(shm_bytes=GIB - 1)),
    Edge("GL056", VLLM, SOUND, Host(shm_bytes=GIB)),
    Edge("GL056", VLLM, FLAWED, Host(shm_bytes=0)),
    Edge("GL056", VLLM, SOUND, Host()),
    Edge(
        "GL056", VLLM.replace("=4", "=1") + "--dataloader_num_workers 0", SOUND, Host(shm_bytes=0)
    ),
    Edge(
        "GL056", VLLM.replace("=4", "=1") + "--dataloader_num_workers 1", FLAWED, Host(shm_bytes=0)
    ),
    Edge(
        "GL056", VLLM.replace("=4", "=2") + "--dataloader_num_workers 0", FLAWED, Host(shm_bytes=0)
    ),
    Edge("GL056", ROLLOUT, SOUND, Host(shm_bytes=0)),
    Edge("GL060", SWIFT, FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero3", FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero3 --ds3_gather_for_generation false", FLAWED),
    Edge("GL060", SWIFT + "--deepspeed zero2 --ds3_gather_for_generation false", FLAWED),
    Edge("GL060", VLLM, SOUND),
    Edge("GL060", SWIFT.replace("grpo", "dpo"), SOUND),
    Edge("GL060", MEGATRON, SOUND),
    Edge("GL060", SWIFT + "--vllm_mode colocate", SOUND),
    Edge("GL060", SWIFT + f"{SHARE} 0.5", SOUND),
    Edge("GL060", "trl grpo", SOUND),
    Edge("GL060", VERL, SOUND),
    Edge("GL061", f"{POOL}{REWARDS}/top_level.py", FLAWED, versions={"verl": "0.4.9"}),
    Edge("GL061", f"{POOL}{REWARDS}/top_level.py", SOUND, versions={"verl": "0.5.0"}),
    Edge("GL061", f"{POOL}{REWARDS}/made_anew.py", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL061", f"{POOL}{REWARDS}/made_anew.py", FLAWED, versions={"verl": "0.7.1"}),
    Edge("GL061", VERL + "reward_model.reward_manager=prime", SOUND, versions={"verl": "0.4.9"}),
    Edge(
        "GL061",
        VERL + f"custom_reward_function.path={REWARDS}/top_level.py",
        SOUND,
        versions={"verl": "0.4.9"},
    ),
    Edge("GL062", SWIFT + "--tuner_backend unsloth", FLAWED),
    Edge("GL062", SWIFT + "--tuner_backend peft", SOUND),
    Edge("GL062", SWIFT.replace("grpo", "dpo") + "--tuner_backend unsloth", SOUND),
    Edge("GL062", TRL + "--tuner_backend unsloth", SOUND),
    Edge("GL063", f"MAX_PIXELS=9\nNPROC_PER_NODE=2\nNNODES=2\n{GRPO}", FLAWED),
    Edge("GL063", f"MAX_PIXELS=9\nNPROC_PER_NODE=2\n{GRPO}", FLAWED),
    Edge("GL063", f"MAX_PIXELS=9\n{GRPO}", FLAWED),
    Edge("GL063", f"export MAX_PIXELS=9\n{GRPO}", SOUND),
)
