"""Each setting moves the phases that it must and no other, or is listed with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.tables import BY_NAME
from grpo_doctor.launches import Launch, read
from grpo_doctor.memory import GIB, Machine, estimate, ledger_of, setup_of
from grpo_doctor.memory.domain import not_modelled

MACHINE = Machine(80 * GIB, 8, host_bytes=2000 * GIB)
_SWIFT = (
    "--rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 2048 --max_completion_length 2048 "
    "--beta 0.04 --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 "
    "--sleep_level 1 "
)
_VERL = (
    "algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B "
    "trainer.n_gpus_per_node=8 actor_rollout_ref.rollout.name=vllm data.max_prompt_length=2048 "
    "data.max_response_length=2048 data.train_batch_size=64 actor_rollout_ref.rollout.n=8 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_kl_loss=True "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 "
)
_FULL = "--tuner_type full --per_device_train_batch_size 4 "
JOBS = {
    "ms-swift": f"NPROC_PER_NODE=8 swift rlhf {_SWIFT} {_FULL} --deepspeed zero3",
    "adapters": f"NPROC_PER_NODE=8 swift rlhf {_SWIFT} --tuner_type lora --freeze_vit false "
    "--deepspeed zero2".replace("Qwen2.5-7B", "Qwen2.5-VL-7B-Instruct"),
    "by-generate": f"NPROC_PER_NODE=8 swift rlhf {_SWIFT} {_FULL} --use_vllm false",
    "trl": "accelerate launch --num_processes 8 -m trl.scripts.grpo --beta 0.04 "
    "--model_name_or_path Qwen/Qwen2.5-7B --use_vllm --vllm_mode colocate "
    "--vllm_gpu_memory_utilization 0.5 --max_completion_length 2048 "
    "--per_device_train_batch_size 4 --vllm_enable_sleep_mode true",
    "verl": f"python -m verl.trainer.main_ppo {_VERL}",
    "verl-by-tokens": f"python -m verl.trainer.main_ppo {_VERL} "
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "verl-Megatron": "python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer "
    f"{_VERL} actor_rollout_ref.actor.strategy=megatron "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2",
    "openrlhf": "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B "
    "--algo.advantage.estimator group_norm --train.colocate_all --vllm.enable_sleep "
    "--vllm.gpu_memory_utilization 0.5 --train.micro_batch_size 4 --rollout.micro_batch_size 4 "
    "--data.max_len 4096",
    "megatron": f"NPROC_PER_NODE=8 megatron rlhf {_SWIFT} --tuner_type full --micro_batch_size 4 "
    "--tensor_model_parallel_size 2 --recompute_granularity full",
}
ROWS = "ms-swift trl verl verl-Megatron openrlhf megatron"
OPTIMIZERS = "ms-swift verl verl-Megatron megatron"
ENGINES = "ms-swift trl verl verl-Megatron megatron"
ALL = "init rollout logprob train optimizer sync checkpoint"
COMMUNICATOR = "init rollout optimizer sync checkpoint"
ASLEEP = "logprob train optimizer sync checkpoint"
HELD = "rollout logprob train optimizer sync checkpoint"
MOVES = (  # jobs; knob; two values of it; the phases that take more with the second; less
    ("ms-swift trl megatron", "train.micro_batch", 4, 8, "logprob train", ""),
    ("verl verl-Megatron openrlhf", "train.micro_batch", 4, 8, "train", ""),
    ("verl verl-Megatron openrlhf", "train.logprob_micro_batch", 4, 8, "logprob", ""),
    ("verl-by-tokens", "train.micro_batch", 4, 8, "", ""),
    ("verl-by-tokens", "train.max_tokens_per_gpu", 8192, 16384, "logprob train", ""),
    ("verl verl-Megatron openrlhf", "train.dynamic_batch", False, True, "logprob train", ""),
    ("verl", "train.prompts_per_step", 2, 4, "train", ""),  # 2 rows of a rank are no 4
    ("verl", "train.prompts_per_step", 32, 64, "", ""),
    ("verl", "rollout.prompts", 2, 4, "logprob", ""),
    ("verl", "rollout.num_generations", 8, 16, "", ""),
    ("ms-swift adapters", "data.max_length", 2048, 4096, "train", ""),
    ("verl verl-Megatron megatron", "data.max_length", 2048, 4096, "logprob train", ""),
    ("verl-by-tokens", "data.max_length", 2048, 4096, "", ""),
    ("openrlhf", "vllm.max_model_len", 4096, 8192, "logprob train", ""),
    (ROWS, "rollout.max_completion_length", 1024, 2048, "logprob train", ""),
    ("by-generate", "rollout.max_completion_length", 1024, 2048, "rollout logprob train", ""),
    ("by-generate", "rollout.completions", 64, 128, "rollout", ""),
    ("by-generate", "rollout.steps_per_generation", 1, 2, "rollout", ""),
    ("by-generate", "train.grad_accumulation", 1, 2, "rollout", ""),
    ("adapters", "data.max_pixels", 401_408, 802_816, "train", ""),
    ("verl verl-by-tokens", "train.gradient_checkpointing", False, True, "", "train"),
    ("ms-swift trl openrlhf", "train.gradient_checkpointing", False, True, "", "train"),
    ("verl-Megatron megatron", "parallel.recompute", "full", "none", "train", ""),
    ("by-generate", "model.attention", "eager", "flash_attention_2", "", "logprob train"),
    ("trl", "model.attention", "eager", "flash_attention_2", "", "logprob"),
    ("verl", "train.activation_offload", False, True, "", "train"),
    ("ms-swift", "train.use_liger", False, True, "", "logprob train"),
    ("verl", "train.use_liger", False, True, "", "logprob"),  # training peaks at FSDP's gradients
    ("trl", "train.use_liger", False, True, "", "train"),  # its kernel has no logits either
    ("ms-swift verl openrlhf", "train.padding_free", False, True, "", "logprob train"),
    ("verl-Megatron", "train.padding_free", False, True, "", ""),  # it packs anyway
    ("ms-swift trl", "deepspeed.preset", "zero2", "zero3", "", ALL),
    ("openrlhf", "deepspeed.stage", 2, 3, "", ALL),
    ("openrlhf", "deepspeed.offload_optimizer", False, True, "host", HELD),
    ("verl", "parallel.fsdp_size", 8, 4, ALL, ""),
    ("verl", "parallel.reshard", False, True, "", "logprob train"),
    ("verl", "train.entropy_coefficient", 0.0, 0.01, "train", ""),
    ("openrlhf", "deepspeed.overlap_comm", False, True, "logprob train optimizer", ""),
    ("verl", "parallel.fsdp_offload", False, True, "host", HELD),
    ("verl", "run.nodes", 1, 2, "", ALL),
    ("verl-Megatron openrlhf", "run.nodes", 1, 2, "", HELD),
    ("verl", "run.gpus_per_node", 4, 8, "host", ALL),
    ("verl-Megatron megatron openrlhf", "parallel.tensor", 2, 4, "", ALL),
    ("verl-Megatron megatron", "parallel.pipeline", 1, 2, "", ALL),
    ("ms-swift", "parallel.context", 1, 2, COMMUNICATOR, "logprob train"),
    ("verl", "parallel.context", 1, 2, f"{COMMUNICATOR} logprob", "train"),  # what FSDP gathers
    ("megatron", "parallel.expert", 1, 2, ALL, ""),  # of a dense model a communicator alone
    ("verl-Megatron megatron", "parallel.expert_tensor", 1, 2, "", ""),  # of a dense model nothing
    ("megatron", "parallel.sequence", False, True, "", "train"),
    ("megatron verl-Megatron", "parallel.distributed_optimizer", False, True, "", HELD),
    ("ms-swift megatron", "offload.model", False, True, "host", "init rollout"),
    ("verl verl-Megatron", "offload.model", False, True, "host", "init rollout"),
    (f"{OPTIMIZERS} openrlhf", "offload.optimizer", False, True, "host", "rollout sync"),
    ("verl verl-Megatron openrlhf", "offload.reference", False, True, "", ALL),
    ("ms-swift trl verl openrlhf megatron", "train.beta", 0.0, 0.04, ALL, ""),
    ("adapters", "train.beta", 0.0, 0.04, "", ""),  # without them it is the reference
    ("ms-swift trl megatron", "train.type", "full", "lora", "", ALL),
    ("adapters verl openrlhf", "train.lora_rank", 8, 16, ALL, ""),
    ("adapters", "train.lora_targets", "all-linear", "q_proj v_proj", "", ALL),
    ("adapters", "train.freeze_vit", False, True, "", ALL),
    ("adapters", "train.freeze_aligner", False, True, "", ALL),
    ("verl", "train.dtype", "bfloat16", "float32", ALL, ""),
    ("trl", "model.dtype", "bfloat16", "float32", ALL, ""),
    ("ms-swift trl", "train.optimizer", "adamw_torch_fused", "paged_adamw_8bit", "", HELD),
    (f"{ENGINES} openrlhf", "vllm.gpu_memory_utilization", 0.4, 0.6, "init rollout", ""),
    ("ms-swift openrlhf megatron", "vllm.tensor_parallel_size", 2, 4, "", "sync host"),
    ("trl verl verl-Megatron", "vllm.tensor_parallel_size", 2, 4, "", "sync"),
    ("ms-swift verl", "vllm.pipeline_parallel_size", 1, 2, "", "sync"),
    ("ms-swift megatron", "vllm.kv_cache_memory_bytes", 2**33, 2**34, "init rollout", ""),
    ("trl verl verl-Megatron", "vllm.sleep_level", 0, 1, "", ASLEEP),
    ("ms-swift megatron", "vllm.sleep_level", 0, 1, "host", ASLEEP),
    ("ms-swift", "sync.move_model_batches", 1, 16, "", "sync"),
    ("ms-swift trl verl openrlhf", "dataload.num_workers", 4, 8, "host", ""),
)
WITHOUT = {
    "what is learned, or how it is drawn": "rollout.temperature rollout.top_p rollout.top_k "
    "rollout.repetition_penalty rollout.importance_correction rollout.importance_mode "
    "rollout.importance_cap train.lora_alpha train.learning_rate train.lr_scheduler "
    "train.warmup_steps train.weight_decay train.max_grad_norm train.epsilon train.epsilon_high "
    "train.delta train.loss_type train.scale_rewards train.importance_level train.mask_truncated "
    "train.top_entropy_quantile reward.weights",
    "how many steps, and what is written after them": "train.max_steps eval.steps log.completions "
    "checkpoint.save_steps checkpoint.save_total_limit checkpoint.directory",
    "more micro-batches of the same size": "train.completions_per_step train.num_iterations "
    "rollout.dynamic_sampling rollout.max_resample rollout.queue_size rollout.partial",
    "names, addresses and time limits": "vllm.server_host vllm.server_port vllm.group_port "
    "vllm.server_timeout_s run.collective_timeout_s reward.timeout_s",
    "rewards and data on the host, in processes that are not counted": "reward.num_workers "
    "reward.async reward.overlong_buffer data.truncation data.filter_overlong data.num_proc "
    "dataload.prefetch_factor dataload.persistent_workers dataload.pin_memory",
    "within the engine's share: how it is split into cache and buffers": "vllm.max_num_seqs "
    "vllm.max_num_batched_tokens vllm.enable_chunked_prefill vllm.enable_prefix_caching "
    "vllm.enable_lora vllm.max_lora_rank vllm.kv_cache_dtype vllm.disable_log_stats "
    "vllm.disable_custom_all_reduce vllm.data_parallel_size vllm.dtype",
    "the ledger counts the larger of both": "offload.gc_collect train.share_prompts "
    "sync.layered sync.flattened sync.ref_model "
    "deepspeed.prefetch_bucket_size checkpoint.save_only_model",
    "below what is said of overhead": "sync.bucket_mb deepspeed.persistence_threshold "
    "deepspeed.pin_memory vllm.swap_space eval.micro_batch train.router_replay "
    "rollout.return_experts",
    "16 bits in both": "train.fp16",
}
"""By reason, the settings on which no phase depends."""
ELSEWHERE = (
    "model.name model.reference parallel.strategy vllm.use vllm.mode "
    "rollout.engine rollout.async deepspeed.offload_param sync.gather_for_generation "
    "vllm.enforce_eager"
)
"""What changes the model, the engine or the phases themselves; tests of setups hold these."""
REFUSED = {
    "deepspeed.hpz_partition_size": ("openrlhf", 2, "ZeRO++"),
    "parallel.virtual_pipeline": ("megatron", 2, "virtual pipeline"),
    "train.freeze_llm": ("ms-swift", True, "the language model is frozen"),
    "train.bf16": ("trl", False, "training computes in float32"),
    "vllm.quantization": ("ms-swift", "bitsandbytes", "quantized to bitsandbytes"),
}


def phases(launch: Launch) -> dict[str, int]:
    ledger = estimate(launch, MACHINE)
    assert ledger.host is not None
    return {phase.name: phase.bytes for phase in (*ledger.train.phases, *ledger.host.phases)}


def with_value(job: str, knob: str, value: Any) -> Launch:
    spelling = read([JOBS[job]]).spell(knob, value)
    assert spelling, f"{job} has no {knob}"
    return read([f"{JOBS[job]} {spelling}"])


@pytest.mark.parametrize(
    ("job", "knob", "before", "after", "more", "less"),
    [(job, *move) for jobs, *move in MOVES for job in jobs.split()],
)
def test_a_setting_moves_the_phases_that_it_must_and_no_other(
    job: str, knob: str, before: Any, after: Any, more: str, less: str
) -> None:
    first, second = (phases(with_value(job, knob, value)) for value in (before, after))
    assert {name for name in first if second[name] > first[name]} == set(more.split())
    assert {name for name in first if second[name] < first[name]} == set(less.split())


@pytest.mark.parametrize("option", ["vit_gradient_checkpointing", "gradient_checkpointing"])
def test_a_tower_that_is_not_recomputed_keeps_its_layers(option: str) -> None:
    before, after = (
        setup_of(read([f"{JOBS['adapters']} --{option} {on}"]), MACHINE).trainer
        for on in ("true", "false")
    )
    assert before
    assert after
    assert (before.vision_recompute, after.vision_recompute) == (True, False)
    trains = [ledger_of(setup).train.phases[0].bytes for setup in (before, after)]
    assert trains[1] > trains[0]


NUMBERS = {"int": 64, "float": 0.5, "bool": True}


@pytest.mark.parametrize(
    "job", ["ms-swift", "trl", "verl", "verl-Megatron", "openrlhf", "megatron"]
)
def test_a_setting_without_effect_moves_nothing(job: str) -> None:
    plain, launch = phases(read([JOBS[job]])), read([JOBS[job]])
    here = {row.knob for row in knobs.TABLES[launch.table]} & set(
        " ".join(WITHOUT.values()).split()
    )
    spelled = {knob: launch.spell(knob, NUMBERS.get(BY_NAME[knob].kind)) for knob in here}
    moved = [
        spelling
        for spelling in spelled.values()
        if spelling and phases(read([f"{JOBS[job]} {spelling}"])) != plain
    ]
    assert moved == []


@pytest.mark.parametrize("knob", REFUSED)
def test_what_is_not_modelled_is_named(knob: str) -> None:
    job, value, words = REFUSED[knob]
    assert words in str(not_modelled(with_value(job, knob, value)))
    assert words not in str(not_modelled(read([JOBS[job]])))


@pytest.mark.parametrize(
    ("job", "option", "words"),
    [
        ("megatron", "--fp8_format hybrid", "training computes in 8 bits"),
        ("megatron", "--cpu_offloading true", "activations are moved to the host"),
        ("verl", "model_engine=veomni", "veomni trains"),
    ],
)
def test_options_that_are_not_modelled_are_named(job: str, option: str, words: str) -> None:
    assert words in str(not_modelled(read([f"{JOBS[job]} {option}"])))


def test_of_every_setting_it_is_said_what_it_moves() -> None:
    said = {knob for _, knob, *_ in MOVES} | set(REFUSED) | set(ELSEWHERE.split())
    without = " ".join(WITHOUT.values()).split()
    assert len(without) == len(set(without))
    assert said.isdisjoint(without)
    assert said | set(without) == set(BY_NAME)


GLOBAL = (
    ("actor_rollout_ref.actor.ppo_micro_batch_size", "micro_batch"),
    ("actor_rollout_ref.rollout.log_prob_micro_batch_size", "logprob_micro_batch"),
)


@pytest.mark.parametrize(("option", "field"), GLOBAL)
@pytest.mark.parametrize(("context", "rows"), [(1, 16 // 8), (2, 16 // 4), (8, 16)])
def test_older_names_of_verl_count_rows_of_all_ranks(
    option: str, field: str, context: int, rows: int
) -> None:
    command = JOBS["verl"].replace(f"{option}_per_gpu=4", f"{option}=16")
    launch = read([f"{command} actor_rollout_ref.actor.ulysses_sequence_parallel_size={context}"])
    setup = setup_of(launch, MACHINE).trainer
    assert getattr(setup, field) == rows
