"""For each sanity rule a launch that has the flaw, and one like it that has not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from grpo_doctor.launches.view import Host, ModelFacts

QWEN_7B = ModelFacts(
    heads=28, kv_heads=4, layers=28, parameters=7_615_616_512, max_positions=32_768
)
QWEN_VL = ModelFacts(28, 4, 28, 8_292_166_656, max_positions=128_000, pixels_per_token=784)
QWEN_MOE = ModelFacts(32, 4, 48, 30_532_122_624, max_positions=40_960, experts=128)
GIB = 1 << 30
FOUR = Host(cards_per_node=4, card_bytes=24 * GIB)
EIGHT = Host(cards_per_node=8, card_bytes=80 * GIB)

SWIFT = "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct "
VLLM = SWIFT + "--use_vllm true --vllm_mode colocate "
SERVED = SWIFT + "--use_vllm true --vllm_mode server --vllm_server_host 10.0.0.2 "
MEGATRON = "NPROC_PER_NODE=8 megatron rlhf --rlhf_type grpo --model Qwen/Qwen3-30B-A3B "
TRL = (
    "accelerate launch --num_processes 4 -m trl.scripts.grpo --model_name_or_path Qwen/Qwen2.5-7B "
)
VERL = (
    "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 "
)
OPENRLHF = "python -m openrlhf.cli.train_ppo_ray --actor.num_gpus_per_node 8 "


REWARDS = Path(__file__).parent / "rewards"
PLUGIN = f"--external_plugins {REWARDS}/plugin.py"
APART = (
    f"{OPENRLHF}--vllm.num_engines 4 --reward.remote_url http://10.0.0.2 "
    "--algo.advantage.estimator group_norm"
)


@dataclass(frozen=True)
class Pair:
    """Two launches on one host; `words` must be in what the rule says of the first."""

    rule: str
    fails: str
    passes: str
    words: str = ""
    host: Host = EIGHT
    model: ModelFacts | None = QWEN_7B
    versions: dict[str, str] = field(default_factory=dict)
    passing_versions: dict[str, str] | None = None
    fails_with: str | None = None
    passes_with: str | None = None
    passing_host: Host | None = None


KEPT = "trainer.remove_previous_ckpt_in_save"
ZERO3 = "swift rlhf --rlhf_type grpo --deepspeed zero3"
SHOWN = "CUDA_VISIBLE_DEVICES=0,1,2,3 " + SERVED.replace("10.0.0.2", "127.0.0.1")
SLEEPS = "--use_vllm --vllm_mode colocate --vllm_enable_sleep_mode true"
NO_MICRO = VERL.replace("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 ", "")
PAIRS = (
    Pair("GL001", f"NPROC_PER_NODE=1 {ZERO3}", f"NPROC_PER_NODE=4 {ZERO3}", "four GPUs", FOUR),
    Pair("GL001", ZERO3, f"NPROC_PER_NODE=4 {ZERO3}", "it then refuses to start", FOUR),
    Pair("GL001", "python -m trl.scripts.grpo --use_vllm", "trl grpo --use_vllm --vllm_device auto",
         "one process on two GPUs", Host(cards_per_node=2)),
    Pair("GL002", VLLM.replace("=4", "=8"), VLLM, "8 processes on 4", FOUR),
    Pair("GL003", VLLM.replace("=4", "=2"), VLLM, "2 of 4 GPUs", FOUR),
    Pair("GL003", VLLM.replace("=4", "=3").replace("--vllm_mode colocate", ""),
         VLLM.replace("=4", "=3").replace("--vllm_mode colocate", ""), "1 of 4 GPUs", FOUR,
         versions={"ms-swift": "3.5.0"}, passing_versions={"ms-swift": "3.4.1"}),
    Pair("GL004", VLLM + "--per_device_train_batch_size 1 --num_generations 8",
         VLLM + "--per_device_train_batch_size 2 --num_generations 8",
         "a rollout of 4 completions is not divisible by num_generations 8"),
    Pair(
        "GL004",
        TRL + "--per_device_train_batch_size 2 --num_generations 6 --gradient_accumulation_steps 2",
        TRL + "--per_device_train_batch_size 3 --num_generations 6 --gradient_accumulation_steps 2",
        "rollout of 16",
    ),
    Pair("GL005", TRL + "--generation_batch_size 20", TRL + "--generation_batch_size 32", "of 32"),
    Pair("GL006", VERL.replace("rollout.n=8", "rollout.n=1"), VERL, "the reward itself"),
    Pair("GL006", VERL.replace("rollout.n=8", "rollout.n=1"),
         VERL.replace("rollout.n=8", "rollout.n_repeat=8"), "the reward itself"),
    Pair("GL007", TRL + "--eval_strategy steps --per_device_eval_batch_size 1",
         TRL + "--eval_strategy steps --per_device_eval_batch_size 4", "evaluation batch of 4"),
    Pair("GL008", VERL + "data.train_batch_size=1 actor_rollout_ref.rollout.n=5", VERL, "5 compl"),
    Pair("GL009", VERL + "data.train_batch_size=64",
         VERL + "data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=64",
         "mini batch of 256 prompts is larger"),
    Pair("GL010",
         VERL + "actor_rollout_ref.actor.ppo_mini_batch_size=1 actor_rollout_ref.rollout.n=4",
         VERL + "actor_rollout_ref.actor.ppo_mini_batch_size=64", "each rank gets none"),
    Pair("GL011", NO_MICRO, VERL, "no micro batch for the actor"),
    Pair("GL011", NO_MICRO, NO_MICRO, "no micro batch for the actor", versions={"verl": "0.2.0"},
         passing_versions={"verl": "0.1"}),
    Pair("GL011", NO_MICRO, NO_MICRO.replace("verl.trainer", "verl.agent_trainer")),
    Pair("GL011", NO_MICRO, NO_MICRO.replace("verl.trainer", "own.verl.trainer")),
    Pair("GL011", NO_MICRO, "python -m verl.trainer.main_ppo"),
    Pair(
        "GL012",
        VERL + "actor_rollout_ref.actor.use_dynamic_bsz=True data.max_prompt_length=2048 "
        "data.max_response_length=20000",
        VERL + "actor_rollout_ref.actor.use_dynamic_bsz=True data.max_response_length=8000",
        "sequences have up to 22048 tokens",
    ),
    Pair("GL013", OPENRLHF + "--train.batch_size 100 --train.micro_batch_size 2",
         OPENRLHF + "--train.batch_size 128 --train.micro_batch_size 2", "not divisible by 16"),
    Pair("GL014",
         OPENRLHF + "--train.colocate_all --vllm.num_engines 4 --vllm.tensor_parallel_size 1",
         OPENRLHF + "--train.colocate_all --vllm.num_engines 4 --vllm.tensor_parallel_size 2",
         "4 engines of 1 GPUs do not match 8"),
    Pair("GL015", OPENRLHF + "--vllm.enable_sleep",
         OPENRLHF + "--vllm.enable_sleep --train.colocate_all", "does nothing"),
    Pair("GL016", MEGATRON + "--tensor_model_parallel_size 3",
         MEGATRON + "--tensor_model_parallel_size 4", "takes 3 GPUs", model=QWEN_MOE),
    Pair("GL016", MEGATRON + "--expert_model_parallel_size 4 --expert_tensor_parallel_size 4",
         MEGATRON + "--expert_model_parallel_size 4 --tensor_model_parallel_size 4",
         "one copy of the experts takes 16 GPUs", model=QWEN_MOE),
    Pair("GL017", MEGATRON + "--micro_batch_size 3 --global_batch_size 16",
         MEGATRON + "--micro_batch_size 1 --global_batch_size 16", "not divisible by 24",
         model=QWEN_MOE),
    Pair("GL018", MEGATRON + "--pipeline_model_parallel_size 5",
         MEGATRON + "--pipeline_model_parallel_size 4", "48 layers are not divisible by 5",
         model=QWEN_MOE),
    Pair("GL019", VLLM + "--vllm_tensor_parallel_size 8", VLLM + "--vllm_tensor_parallel_size 4",
         "28 attention heads"),
    Pair("GL020", VLLM + "--vllm_tensor_parallel_size 3", VLLM + "--vllm_tensor_parallel_size 2",
         "4 training processes are not divisible by"),
    Pair("GL021", VLLM + "--vllm_max_model_len 2048 --max_completion_length 2048",
         VLLM + "--vllm_max_model_len 4096 --max_completion_length 2048 --max_length 2048",
         "completions of 2048 tokens"),
    Pair("GL022", VLLM + "--vllm_max_model_len 65536", VLLM + "--vllm_max_model_len 32768",
         "65536 tokens are more than the 32768 positions"),
    Pair("GL023", SWIFT + "--use_vllm true --tuner_type lora", VLLM, "--vllm_mode"),
    Pair("GL024", SWIFT + "--use_vllm true --vllm_mode server", SERVED, "no server is given"),
    Pair("GL025", SHOWN, SHOWN, "both see GPU 3",
         fails_with="CUDA_VISIBLE_DEVICES=3 swift rollout --model Qwen/Qwen2.5-7B-Instruct",
         passes_with="CUDA_VISIBLE_DEVICES=4 swift rollout --model Qwen/Qwen2.5-7B-Instruct"),
    Pair("GL026", "MASTER_PORT=8000 " + SERVED + "--vllm_server_port 8000",
         "MASTER_PORT=29500 " + SERVED + "--vllm_server_port 8000", "port 8000 is given to"),
    Pair(
        "GL027",
        SHOWN,
        SHOWN + "--vllm_server_port 8001",
        "listens on port 8001",
        fails_with="CUDA_VISIBLE_DEVICES=4 swift rollout --port 8001 --model Qwen2.5-7B-Instruct",
        passes_with="CUDA_VISIBLE_DEVICES=4 swift rollout --port 8001 --model Qwen2.5-7B-Instruct",
    ),
    Pair("GL028", SERVED, SERVED, "the server has Qwen2.5-3B-Instruct",
         fails_with="CUDA_VISIBLE_DEVICES=4 swift rollout --model Qwen/Qwen2.5-3B-Instruct",
         passes_with="CUDA_VISIBLE_DEVICES=4 swift rollout --model /models/Qwen2.5-7B-Instruct/"),
    Pair("GL029", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + TRL + SLEEPS,
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True " + VLLM + "--sleep_level 1",
         "are mutually exclusive"),
    Pair("GL030", VLLM, VLLM + "--sleep_level 1", "90% of each GPU"),
    Pair("GL031", VLLM + "--vllm_gpu_memory_utilization 0.4",
         VLLM + "--vllm_gpu_memory_utilization 0.4 --vllm_tensor_parallel_size 4",
         "cannot hold its weights", FOUR),
    Pair("GL032", SERVED + "--offload_optimizer true", VLLM + "--offload_optimizer true",
         "nothing"),
    Pair("GL033", SERVED + "--sleep_level 1", VLLM + "--sleep_level 1", "does nothing here"),
    Pair(
        "GL034",
        SWIFT + """--deepspeed '{"zero_optimization": {"stage": 2, "offload_param": """
        """{"device": "cpu"}}}'""",
        SWIFT + "--deepspeed zero3_offload",
        "nothing with ZeRO-2",
    ),
    Pair("GL036", VLLM + "--vllm_enable_lora true --lora_rank 64",
         VLLM + "--vllm_enable_lora true --lora_rank 64 --vllm_max_lora_rank 64",
         "adapters have rank 64"),
    Pair("GL037", TRL + "--lora_r 16", TRL + "--use_peft --lora_r 16", "do nothing"),
    Pair("GL039", VLLM + "--async_generate true", SERVED + "--async_generate true", "a server"),
    Pair("GL040", VLLM, VLLM + "--ddp_timeout 3600", "208 days"),
    Pair("GL041", VLLM + "--bf16 true --fp16 true", VLLM + "--bf16 true", "are both on"),
    Pair("GL042", VLLM, VLLM, "does not work with trl 1.2.0",
         versions={"ms-swift": "4.6.0", "trl": "1.2.0"},
         passing_versions={"ms-swift": "4.6.0", "trl": "0.29.1"}),
    Pair("GL043", VLLM + "--max_length 4096", "MAX_PIXELS=602112 " + VLLM + "--max_length 4096",
         "up to 16384 tokens", model=QWEN_VL),
    Pair("GL044", VLLM + "--temperature 0", VLLM + "--temperature 0.7", "are identical"),
    Pair("GL045", VLLM + "--deepspeed zero2 --fsdp 'full_shard auto_wrap'",
         VLLM + "--deepspeed zero2", "are both on"),
    Pair("GL046", SWIFT + "--vllm_max_model_len 4096", VLLM + "--vllm_max_model_len 4096",
         "not used"),
    Pair("GL048", VLLM + "--padding_free true --attn_impl sdpa",
         VLLM + "--padding_free true --attn_impl flash_attn", "needs flash attention"),
    Pair("GL049", VLLM + "--use_liger_kernel true --padding_free true --attn_impl flash_attn",
         VLLM + "--use_liger_kernel true", "--padding_free true"),
    Pair("GL050", VERL.replace("actor_rollout_ref.rollout.name=vllm ", ""), VERL, "is not set"),
    Pair("GL051", VERL.replace("algorithm.adv_estimator=grpo ", ""), VERL, "PPO with a critic"),
    Pair("GL052", VERL + "actor_rollout_ref.rollout.mode=sync",
         VERL + "actor_rollout_ref.rollout.mode=async", "since 0.7", versions={"verl": "0.9.1"}),
    Pair(
        "GL053",
        VERL + "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 "
        "actor_rollout_ref.model.use_remove_padding=False",
        VERL + "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
        "use_remove_padding",
    ),
    Pair("GL054", VLLM + "--tuner_type full", VLLM + "--tuner_type full", "but 50 GB are free",
         Host(cards_per_node=4, free_disk_bytes=50_000_000_000),
         passing_host=Host(cards_per_node=4, free_disk_bytes=5_000_000_000_000)),
    Pair("GL055", VLLM + "--tuner_type full", VLLM + "--tuner_type full --save_total_limit 2",
         "all are kept"),
    Pair("GL055", OLD := VERL + "trainer.save_freq=5 ", f"{OLD}{KEPT}=True", "all are kept",
         versions={"verl": "0.2.0"}),
    Pair("GL056", VLLM, VLLM, "64 MiB", Host(shm_bytes=64 << 20),
         passing_host=Host(shm_bytes=8 * GIB)),
    Pair("GL060", SWIFT, VLLM, "generation uses transformers"),
    Pair("GL039", SWIFT.replace("=4", "=3") + "--use_vllm true --async_generate true",
         SWIFT.replace("=4", "=3") + "--use_vllm true --async_generate true", "need a server", FOUR,
         versions={"ms-swift": "3.5.0"}, passing_versions={"ms-swift": "3.4.1"}),
    Pair("GL030", SWIFT + "--use_vllm true", SWIFT.replace("=4", "=3") + "--use_vllm true",
         "also during training", FOUR, versions={"ms-swift": "3.4.1"}),
    Pair(
        "GL063",
        f"NPROC_PER_NODE=8\nPYTORCH_CUDA_ALLOC_CONF=x:y\nNOTE=mine\n{ZERO3}",
        f"export NPROC_PER_NODE=8\n{ZERO3}",
        "NPROC_PER_NODE and PYTORCH_CUDA_ALLOC_CONF are set, but not exported the command does "
        "not see them",
    ),
    Pair("GL063", f"MAX_PIXELS=1003520\n{VLLM}", f"MAX_PIXELS=1003520 {VLLM}",
         "MAX_PIXELS is set, but not exported the command does not see it"),
    Pair(
        "GL063",
        f"NPROC_PER_NODE=8\n{ZERO3}",
        "NPROC_PER_NODE=8\ntorchrun --nproc_per_node ${NPROC_PER_NODE} swift/cli/rlhf.py "
        "--rlhf_type grpo",
    ),
    Pair("GL063", f"MAX_PIXELS=9\n{VLLM}", f"set -a\nMAX_PIXELS=9\n{VLLM}"),
    Pair("GL064", f"{APART} --ref.num_gpus_per_node 4", f"{APART} --algo.kl.init_coef 0",
         "16 GPUs of 12", Host(cards_per_node=12)),
    Pair("GL065", SWIFT + "--dataset x", SWIFT + "--dataset x --reward_funcs accuracy",
         "no reward"),
    Pair("GL066", SWIFT + f"--dataset {REWARDS}/gone.jsonl#5", SWIFT + "--dataset a/b#5",
         "gone.jsonl", Host(is_here=True)),
    Pair("GL068", VERL.replace("python", "torchrun --nproc_per_node 8", 1), VERL,
         "torchrun starts the driver of verl 8 times"),
    Pair("GL067", SWIFT + "--reward_funcs nosuch", SWIFT + f"--reward_funcs mine {PLUGIN}",
         "does not know the reward function nosuch"),
    Pair("GL062", VLLM + "--tuner_type lora --tuner_backend unsloth",
         VLLM + "--tuner_type lora --tuner_backend peft", "3183"),
)  # fmt: skip
