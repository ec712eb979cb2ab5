"""What each word of a launch is in the setup of its training, of a model that is known already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.launches import read
from grpo_doctor.memory import GIB, Job, Machine, ModelShape, Setup, setup_of
from tests.unit.memory.tiny import TINY, tower

SEEING = replace(TINY, vision=tower(), max_positions=777)  # a token is 16 pixels
MACHINE = Machine(80 * GIB, 8, nodes=3, server_card_bytes=40 * GIB, host_bytes=5)
BARE = "swift rlhf --rlhf_type grpo --model m "
SWIFT = "NPROC_PER_NODE=4 " + BARE
VLLM = SWIFT + "--use_vllm true "
TRL = "accelerate launch --num_processes 4 -m trl.scripts.grpo --model_name_or_path m "
VERL = "python -m verl.trainer.main_ppo trainer.n_gpus_per_node=4 "
OPENRLHF = "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path m "
DYNAMIC = OPENRLHF + "--train.dynamic_batch_enable "
MEGATRON = "NPROC_PER_NODE=8 megatron rlhf --rlhf_type grpo --model m "
OFFLOADS = MEGATRON + "--optimizer_cpu_offload "
OLD = {"ms-swift": "3.4.1"}


def job(
    command: str, versions: dict[str, str] | None = None, shape: ModelShape | None = TINY
) -> Job:
    return setup_of(read([command], versions=versions or {}), MACHINE, shape)


def setup(command: str, versions: dict[str, str] | None = None, **more: Any) -> Setup:
    trainer = job(command, versions, **more).trainer
    assert trainer is not None
    return trainer


@pytest.mark.parametrize(
    ("command", "ranks", "per_node", "engine"),
    [
        (SWIFT, 4, 4, "torch"),
        ("NNODES=2 " + SWIFT, 8, 4, "torch"),
        (BARE, 24, 8, "torch"),  # one for each card of the three hosts
        ("CUDA_VISIBLE_DEVICES=0,1,2 " + BARE, 9, 3, "torch"),
        ("CUDA_VISIBLE_DEVICES=0,1,2 " + SWIFT, 4, 4, "torch"),
        (VERL, 4, 4, "fsdp"),
        (VERL + "trainer.nnodes=2", 8, 4, "fsdp"),
        (OPENRLHF, 8, 8, "deepspeed"),
        (SWIFT + "--deepspeed zero1", 4, 4, "deepspeed"),
        (SWIFT + "--fsdp fsdp2", 4, 4, "fsdp"),
        (SWIFT + "--fsdp full_shard", 4, 4, "fsdp"),
        (SWIFT + "--fsdp 'full_shard auto_wrap'", 4, 4, "fsdp"),
        (SWIFT + "--fsdp shard_grad_op", 4, 4, "torch"),
        (MEGATRON, 8, 8, "megatron"),
        (VERL + "actor_rollout_ref.actor.strategy=megatron", 4, 4, "megatron"),
    ],
)
def test_ranks_and_what_divides_the_model(
    command: str, ranks: int, per_node: int, engine: str
) -> None:
    actual = setup(command)
    assert (actual.ranks, actual.ranks_per_node, actual.engine) == (ranks, per_node, engine)


@pytest.mark.parametrize(
    ("change", "ranks", "engine"),
    [
        ({}, 2, "device_map"),
        ({"gpu_ids": ("0",)}, 1, "torch"),
        ({"gpu_ids": None}, 1, "torch"),
        ({"launcher": "torchrun"}, 1, "torch"),
        ({"processes_per_node": 2}, 2, "torch"),
        ({"settings": {"deepspeed.stage": 2}}, 1, "deepspeed"),
    ],
)
def test_one_process_that_nothing_started_spreads_its_layers_over_its_cards(
    change: dict[str, Any], ranks: int, engine: str
) -> None:
    launch = read([TRL])
    alone = replace(launch, launcher="", processes_per_node=1, gpu_ids=("0", "1"))
    actual = setup_of(replace(alone, **change), MACHINE, TINY).trainer
    assert actual is not None
    assert (actual.ranks, actual.ranks_per_node, actual.engine) == (ranks, ranks, engine)


@pytest.mark.parametrize(
    ("command", "expected", "versions"),
    [
        *((SWIFT + more, {"old_vision_tower": old}, {"ms-swift": own, "transformers": below})
          for more, own, below, old in (
              ("", "3.5.9", "4.52.9", True), ("", "3.6.0", "", False),
              ("", "3.5.9", "4.53.0", False), ("", "3.6.0", "4.52.9", True),
              ("--attn_impl flash_attn", "3.5.9", "", False),
              ("--attn_impl sdpa", "3.5.9", "", True))),
        *((TRL, {"loss": loss, "optimizer": adam, "old_vision_tower": False}, {"trl": own})
          for own, loss, adam in (
              ("0.14.0", "float32", "adamw_foreach"), ("0.15.0", "upcast", "adamw_foreach"),
              ("0.23.0", "upcast", "adamw_foreach"), ("0.24.0", "upcast", "adamw"),
              ("1.15.9", "upcast", "adamw"), ("1.16.0", "triton", "adamw"))),
        (TRL, {"old_vision_tower": True}, {"trl": "0.15.0", "transformers": "4.52.9"}),
        (SWIFT, {"optimizer": "adamw_foreach"}, OLD),
        *((TRL, {"trained_dtype_bytes": size}, {"trl": own, "transformers": below})
          for own, below, size in (("0.25.1", "4.57.0", 4), ("0.25.1", "5.1.0", 2),
                                   ("0.26.2", "4.57.0", 2), ("1.16.0", "5.1.0", 4))),
        *((f"{SWIFT}--train_type {kind}", {"whole_row_logits": whole}, {"ms-swift": own})
          for own, kind, whole in (
              ("3.5.9", "lora", True), ("3.5.9", "full", False), ("3.6.0", "lora", False))),
        *((f"{SWIFT}--per_device_train_batch_size 2 --gradient_accumulation_steps {more}",
           {"completions_per_rank": rows}, {})
          for more, rows in (("4", 8), ("4 --steps_per_generation 8", 16), ("1", 2))),
        *((*row, {}) for row in (
        (SWIFT, {"method": "lora", "lora_rank": 8, "base_bits": 16}),
        (SWIFT + "--lora_rank 16", {"method": "lora", "lora_rank": 16}),
        (SWIFT + "--tuner_type full --lora_rank 16", {"method": "full"}),
        (SWIFT + "--tuner_type qlora", {"method": "lora", "base_bits": 4}),
        (SWIFT.replace("--model m", "--model m-GPTQ-Int8"), {"base_bits": 8}),
        (SWIFT + "--quant_bits 4 --quant_method bnb", {"base_bits": 4}),
        (TRL + "--use_peft --load_in_4bit", {"base_bits": 4, "tables_in_float32": True}),
        (TRL + "--use_peft --load_in_8bit", {"base_bits": 8}),
        (TRL, {"method": "full"}),
        (TRL + "--use_peft --lora_r 4", {"method": "lora", "lora_rank": 4}),
        (VERL, {"method": "full", "lora_rank": 8}),
        (VERL + "actor_rollout_ref.model.lora_rank=0", {"method": "full", "lora_rank": 8}),
        (VERL + "actor_rollout_ref.model.lora_rank=4", {"method": "lora", "lora_rank": 4}),
        (SWIFT + "--target_modules q_proj v_proj", {"lora_targets": "attention"}),
        (SWIFT + "--target_modules q_proj up_proj", {"lora_targets": "all-linear"}),
        (SWIFT + "--target_modules all-linear", {"lora_targets": "all-linear"}),
        (SWIFT, {"lora_targets": "all-linear", "freeze_vision": True, "freeze_aligner": True}),
        (TRL, {"freeze_vision": False, "freeze_aligner": False}),
        (SWIFT + "--freeze_vit false", {"freeze_vision": False, "freeze_aligner": True}),
        (SWIFT + "--freeze_aligner false", {"freeze_vision": True, "freeze_aligner": False}),
        (SWIFT, {"trained_dtype_bytes": 2}),
        (SWIFT + "--torch_dtype float32", {"trained_dtype_bytes": 4}),
        (SWIFT + "--torch_dtype torch.float16", {"trained_dtype_bytes": 2}),
        (TRL, {"trained_dtype_bytes": 4}),
        (VERL, {"trained_dtype_bytes": 4}),
        (OPENRLHF, {"trained_dtype_bytes": 2}),
        (SWIFT, {"optimizer": "adamw"}),
        (SWIFT + "--optim adamw_torch", {"optimizer": "adamw_foreach"}),
        (SWIFT + "--optim adamw_torch_fused", {"optimizer": "adamw"}),
        (SWIFT + "--optim paged_adamw_8bit", {"optimizer": "adamw_8bit"}),
        (SWIFT + "--optim muon", {"optimizer": "muon"}),
        (SWIFT + "--optim galore_adamw", {"optimizer": "galore"}),
        (SWIFT + "--optim sgd", {"optimizer": "sgd"}),
        (SWIFT + "--optim adafactor", {"optimizer": "sgd"}),
        (OPENRLHF, {"optimizer": "adamw"}),
        (VERL, {"optimizer": "adamw_foreach"}),
        (VERL + "actor_rollout_ref.actor.strategy=fsdp2", {"optimizer": "adamw"}),
        (SWIFT + "--ds3_gather_for_generation false", {"gather_for_generation": False}),
        (SWIFT + "--deepspeed zero3_offload",
         {"zero_stage": 3, "zero_offload_optimizer": True, "zero_offload_parameters": True}),
        (SWIFT + "--deepspeed zero2",
         {"zero_stage": 2, "zero_offload_optimizer": False, "zero_offload_parameters": False}),
        (SWIFT + "--dataloader_num_workers 3", {"loader_workers": 3}),
        (TRL, {"loader_workers": 0}),
        (MEGATRON, {"recompute": "selective", "tensor_parallel": 1, "pipeline_parallel": 1,
                    "expert_parallel": 1, "context_parallel": 1, "distributed_optimizer": True}),
        (MEGATRON + "--recompute_granularity full", {"recompute": "full"}),
        (MEGATRON + "--recompute_granularity odd", {"recompute": "selective"}),
        (MEGATRON + "--tensor_model_parallel_size 2 --pipeline_model_parallel_size 4 "
         "--context_parallel_size 8 --expert_model_parallel_size 16",
         {"tensor_parallel": 2, "pipeline_parallel": 4, "context_parallel": 8,
          "expert_parallel": 16}),
        (MEGATRON, {"optimizer_offload_share": 0.0}),
        (OFFLOADS + "true", {"optimizer_offload_share": 1.0}),
        (OFFLOADS + "1", {"optimizer_offload_share": 1.0}),
        (OFFLOADS + "false --optimizer_offload_fraction 0.5", {"optimizer_offload_share": 0.0}),
        (OFFLOADS + "true --optimizer_offload_fraction 0.5", {"optimizer_offload_share": 0.5}),
        (OFFLOADS + "true --optimizer_offload_fraction x", {"optimizer_offload_share": 1.0}),
        (SWIFT, {"recompute": "full"}),
        (SWIFT + "--gradient_checkpointing false", {"recompute": "none"}),
        (OPENRLHF, {"recompute": "none"}),
        ("PYTORCH_CUDA_ALLOC_CONF=a:1,expandable_segments:True " + SWIFT,
         {"expandable_segments": True}),
        (SWIFT, {"expandable_segments": False}),
        (SWIFT + "--max_length 700 --max_completion_length 300 --per_device_train_batch_size 3",
         {"prompt_tokens": 700, "completion_tokens": 300, "micro_batch": 3}),
        (SWIFT, {"prompt_tokens": 512, "completion_tokens": 512, "micro_batch": 1}),
        (DYNAMIC + "--train.max_tokens_per_gpu 5000",
         {"train_tokens": 5000, "logprob_tokens": 5000}),
        (DYNAMIC + "--train.max_tokens_per_gpu 5000 --rollout.max_tokens_per_gpu 9000",
         {"train_tokens": 5000, "logprob_tokens": 9000}),
        (VERL + "actor_rollout_ref.actor.use_dynamic_bsz=True "
         "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=99999",
         {"train_tokens": 16384, "logprob_tokens": 99999}),
        (OPENRLHF, {"prompt_tokens": 512, "completion_tokens": 2048 - 512, "train_tokens": None}),
        (OPENRLHF + "--rollout.max_new_tokens 1900",
         {"prompt_tokens": 148, "completion_tokens": 1900}),
        (OPENRLHF + "--train.max_tokens_per_gpu 5000 --rollout.micro_batch_size 8 "
         "--train.micro_batch_size 2", {"micro_batch": 2, "logprob_micro_batch": 8}),
        (SWIFT + "--use_liger_kernel true", {"loss": "fused"}),
        (MEGATRON, {"loss": "parallel"}),
        (VERL + "actor_rollout_ref.actor.strategy=megatron", {"loss": "parallel"}),
        (SWIFT, {"loss": "upcast"}),
        (SWIFT + "--deepspeed zero2", {"loss": "bfloat16"}),
        (VERL, {"loss": "inplace"}),
        (OPENRLHF, {"loss": "flash", "attention": "flash"}),
        (SWIFT + "--attn_impl eager", {"attention": "eager"}),
        (SWIFT + "--attn_impl flash_attn", {"attention": "flash"}),
        (TRL, {"attention": "fused"}),
        (SWIFT + "--beta 0", {"reference": False}),
        (SWIFT + "--beta 0.1", {"reference": True}),
        (SWIFT, {"padding_free": False, "whole_row_logits": False}),
        (SWIFT + "--padding_free true", {"padding_free": True, "whole_row_logits": True}),
        (TRL + "--padding_free true", {"whole_row_logits": False}),
        (VERL, {"whole_row_logits": True, "scores_prompts": True}),
        (VERL + "actor_rollout_ref.model.use_remove_padding=False",
         {"whole_row_logits": True, "scores_prompts": False}))),
    ],
)  # fmt: skip
def test_a_setup_is_what_its_launch_and_version_say(
    command: str, expected: dict[str, Any], versions: dict[str, str]
) -> None:
    actual = setup(command, versions)
    assert {name: getattr(actual, name) for name in expected} == expected


def test_images_take_their_place_in_prompts_and_what_is_assumed_is_said() -> None:
    seeing = job("MAX_PIXELS=1600 " + SWIFT, shape=SEEING)
    assert seeing.trainer is not None
    assert (seeing.trainer.max_pixels, seeing.trainer.prompt_tokens) == (1600, 512 + 100)
    assert seeing.assumptions == ("prompts of up to 612 tokens; to change that: --max_length 612",)
    unsaid = job(SWIFT + "--max_length 9", shape=SEEING)
    assert unsaid.trainer is not None
    assert unsaid.trainer.max_pixels == 1_003_520
    (assumption,) = unsaid.assumptions
    assert assumption.startswith(
        "images of up to 1003520 pixels, 62720 tokens (more are allowed); to change "
    )
    lora = setup(SWIFT + "--train_type lora", {"ms-swift": "3.6.0"}, shape=SEEING)
    assert lora.whole_row_logits
    blind = job("MAX_PIXELS=1600 " + OPENRLHF)
    assert blind.trainer is not None
    assert blind.trainer.max_pixels is None
    assert blind.assumptions == ("prompts of up to 512 tokens; no option limits them",)


# -- rollouts


@pytest.mark.parametrize(
    ("command", "versions", "rollout"),
    [
        (SWIFT, {}, "generate"),
        (VLLM + "--vllm_mode colocate", {}, "colocate"),
        (VLLM + "--vllm_mode server", {}, "server"),
        (SWIFT + "--vllm_mode server", {}, "generate"),
        (VERL, {}, "colocate"),
        (OPENRLHF, {}, "server"),
        (OPENRLHF + "--train.colocate_all", {}, "colocate"),
        (VLLM, OLD, "server"),  # the engine gets one of the cards that are left
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 " + VLLM, OLD, "colocate"),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3,4 " + VLLM, OLD, "server"),
    ],
)
def test_what_rolls_out(command: str, versions: dict[str, str], rollout: str) -> None:
    actual = job(command, versions)
    assert actual.trainer is not None
    assert actual.trainer.rollout == rollout
    # Before 3.5 the engine's own card is a server of this launch.
    assert (actual.server is not None) is (rollout == "server" and versions == OLD)


def test_an_engine_on_a_card_of_its_own_is_one_without_ranks_beside() -> None:
    actual = job(VLLM + "--tensor_parallel_size 2", OLD).server
    assert actual is not None
    assert (actual.ranks, actual.ranks_per_node, actual.rollout) == (2, None, "server")


ENGINE = (
    "--vllm_gpu_memory_utilization 0.4 --vllm_tensor_parallel_size 2 --vllm_max_model_len 99 "
    "--vllm_max_num_seqs 7 --vllm_enforce_eager true --sleep_level 1"
)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"name": "vllm", "memory_share": 0.9, "tensor_parallel": 1, "max_model_len": None,
              "max_sequences": 256, "eager": False, "sleep_level": 0}),
        (ENGINE,
         {"memory_share": 0.4, "tensor_parallel": 2, "max_model_len": 99, "max_sequences": 7,
          "eager": True, "sleep_level": 1}),
    ],
)  # fmt: skip
def test_the_engine_is_as_it_is_told(more: str, expected: dict[str, Any]) -> None:
    engine = setup(VLLM + "--vllm_mode colocate " + more).rollout_engine
    assert {name: getattr(engine, name) for name in expected} == expected


def test_another_engine_is_known_by_its_name() -> None:
    assert setup(VERL + "actor_rollout_ref.rollout.name=sglang").rollout_engine.name == "sglang"
    assert setup(VERL + "actor_rollout_ref.rollout.name=vllm").rollout_engine.name == "vllm"


@pytest.mark.parametrize(
    ("command", "versions", "expected"),
    [
        ("vllm serve m-AWQ --tensor-parallel-size 2", {"vllm": "0.10.0"}, {
            "base_bits": 4, "ranks": 2, "card_bytes": 40 * GIB, "prompt_tokens": 777,
            "version": "0.10.0", "framework": "vllm", "host_bytes": 5,
        }),
        ("vllm serve m --max-model-len 99", {}, {"base_bits": 16, "prompt_tokens": 99}),
    ],
)  # fmt: skip
def test_a_server_is_a_setup_of_its_own(
    command: str, versions: dict[str, str], expected: dict[str, Any], tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("model")
    for name in ("m", "m-AWQ"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "config.json").write_text(
            '{"hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 9,'
            ' "max_position_embeddings": 777}'
        )
    launch = read([command.replace(" m", f" {folder}/m", 1)], versions=versions)
    actual = setup_of(launch, MACHINE)
    assert actual.trainer is None
    assert actual.server is not None
    assert {name: getattr(actual.server, name) for name in expected} == expected
    assert actual.server.rollout_engine.version == versions.get("vllm", launch.version)


def test_a_server_beside_a_trainer_has_its_model_and_its_rows() -> None:
    main = read([VLLM + "--vllm_mode server --max_length 70 --max_completion_length 30"])
    beside = read(["swift rollout --vllm_gpu_memory_utilization 0.8"])
    actual = setup_of(replace(main, companions=(beside,)), replace(MACHINE, server_card_bytes=None),
                     TINY)  # fmt: skip
    assert actual.trainer is not None
    assert actual.server is not None
    assert actual.server.model is TINY
    assert (actual.server.prompt_tokens, actual.server.completion_tokens) == (70, 30)
    assert (actual.server.card_bytes, actual.trainer.rollout) == (80 * GIB, "server")
    assert actual.assumptions == ()
    unsaid = replace(main, companions=(read(["swift rollout"]),))
    assert setup_of(unsaid, MACHINE, TINY).assumptions == (
        "the server takes 0.9 of each card, its default",
    )
