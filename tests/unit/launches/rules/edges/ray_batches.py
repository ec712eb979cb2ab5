"""Batches of verl and OpenRLHF, and engines on their GPUs: GL008 to GL015."""

from __future__ import annotations

from tests.unit.launches.pairs import OPENRLHF, VERL
from tests.unit.launches.rules.edges.edge import (
    BY_MEGATRON,
    FLAWED,
    GROUP,
    MINI,
    PROMPTS,
    SOUND,
    ULYSSES,
    UNPADDED,
    Edge,
    cards,
)

BARE = VERL.replace("_micro_batch_size_per_gpu=4", "_x=1")
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu="
OF_2000 = "data.max_prompt_length=1000 data.max_response_length=1000"
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=True"
EDGES = (
    Edge("GL008", VERL + f"{PROMPTS}3", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4", FLAWED),
    Edge("GL008", VERL + f"{PROMPTS}1 {GROUP}3", FLAWED),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4 {DYNAMIC}", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}4 {BY_MEGATRON}", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}0 {GROUP}3", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}0", SOUND),
    Edge("GL008", VERL + f"{PROMPTS}3 {GROUP}3 trainer.n_gpus_per_node=$N", SOUND, cards(None)),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}65", FLAWED),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}64", SOUND),
    Edge("GL009", VERL + f"{PROMPTS}0 {MINI}64", SOUND),
    Edge("GL009", VERL + f"{PROMPTS}64 {MINI}0", SOUND),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}16", SOUND),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8", SOUND, versions={"verl": "0.8.0"}),
    Edge("GL010", VERL + f"{MINI}2 {GROUP}8 {DYNAMIC}", SOUND, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}7 {GROUP}1", FLAWED, versions={"verl": "0.8.0"}),
    Edge(
        "GL010",
        VERL + f"{MINI}7 {GROUP}1 {ULYSSES}2 {UNPADDED}True",
        FLAWED,
        versions={"verl": "0.7.0"},
    ),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 {ULYSSES}16", FLAWED, versions={"verl": "0.7.0"}),
    Edge("GL010", VERL + f"{MINI}0 {GROUP}8", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}0", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 {BY_MEGATRON}", SOUND),
    Edge("GL010", VERL + f"{MINI}1 {GROUP}1 trainer.n_gpus_per_node=$N", SOUND, cards(None)),
    Edge(
        "GL010",
        VERL.replace("ppo_micro_batch_size_per_gpu=4", "ppo_micro_batch_size_per_gpu=0")
        + f"{MINI}2 {GROUP}8",
        SOUND,
        versions={"verl": "0.7.0"},
    ),
    Edge("GL011", VERL.replace("ppo_micro_batch_size_per_gpu", "ppo_micro_batch_size"), SOUND),
    Edge("GL011", VERL.replace("log_prob_micro_batch_size_per_gpu=4", "x=1"), FLAWED),
    Edge("GL011", BARE, FLAWED),
    Edge("GL011", BARE + DYNAMIC, SOUND),
    Edge("GL011", BARE.replace("main_ppo", "main_eval"), SOUND),
    Edge("GL011", BARE + "--config-path own --config-name mine", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}2000", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}1999", FLAWED),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}1000 {ULYSSES}2", SOUND),
    Edge("GL012", VERL + f"{OF_2000} {TOKENS}1000", SOUND),
    Edge("GL012", VERL + f"{DYNAMIC} {OF_2000} {TOKENS}0", SOUND),
    Edge(
        "GL012", VERL + f"{DYNAMIC} data.max_prompt_length=0 data.max_response_length=20000", SOUND
    ),
    Edge("GL013", OPENRLHF + "--train.batch_size 16 --train.micro_batch_size 2", SOUND),
    Edge("GL013", OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 2", FLAWED),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 2 --train.dynamic_batch_enable",
        SOUND,
    ),
    Edge("GL013", OPENRLHF + "--train.batch_size 0 --train.micro_batch_size 2", SOUND),
    Edge("GL013", OPENRLHF + "--train.batch_size 24 --train.micro_batch_size 0", SOUND),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 25 --train.micro_batch_size 2 --ds.tensor_parallel_size 2 "
        "--ds.ring_attn_size 2",
        FLAWED,
    ),
    Edge(
        "GL013",
        OPENRLHF + "--train.batch_size 25 --train.micro_batch_size 2 --ds.tensor_parallel_size 16",
        FLAWED,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 4 --vllm.tensor_parallel_size 4",
        FLAWED,
    ),
    Edge("GL014", OPENRLHF + "--vllm.num_engines 4 --vllm.tensor_parallel_size 4", SOUND),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --train.async_enable --vllm.num_engines 4 "
        "--vllm.tensor_parallel_size 4",
        SOUND,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 0 --vllm.tensor_parallel_size 4",
        SOUND,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 3 --vllm.tensor_parallel_size 16",
        FLAWED,
    ),
    Edge(
        "GL014",
        OPENRLHF + "--train.colocate_all --vllm.num_engines 3 --vllm.tensor_parallel_size 0",
        SOUND,
    ),
    Edge("GL015", OPENRLHF + "--vllm.enable_sleep --train.async_enable", FLAWED),
    Edge(
        "GL015", OPENRLHF + "--vllm.enable_sleep --train.async_enable --train.colocate_all", FLAWED
    ),
    Edge("GL015", OPENRLHF + "--vllm.enable_sleep", FLAWED),
    Edge("GL015", OPENRLHF, SOUND),
)
