"""What the trainer's command line refuses before anything is loaded, and the nearest it takes."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse

REFUSED = [
    ("--lora_rank 0", "expected int >= 1, got '0'"),
    ("--max_completion_length 0", "expected int >= 1, got '0'"),
    ("--per_device_train_batch_size 0", "expected int >= 1, got '0'"),
    ("--num_iterations 0", "expected int >= 1, got '0'"),
    ("--save_total_limit 0", "expected int >= 1, got '0'"),
    ("--gradient_accumulation_steps -1", "expected int >= 1, got '-1'"),
    ("--num_generations 1", "got '1': a single completion has no group to compare with"),
    ("--save_steps -1", "expected int >= 0, got '-1'"),
    ("--learning_rate -1", "expected float >= 0.0, got '-1'"),
    ("--top_p 0", "expected float > 0.0, got '0'"),
    ("--epsilon 0", "expected float > 0.0, got '0'"),
    ("--num_train_epochs 0", "expected float > 0.0, got '0'"),
    ("--warmup_ratio 1.5", "expected float <= 1.0, got '1.5'"),
    ("--reward_weights inf", "expected a finite number, got 'inf'"),
    ("--beta -0.1", "expected float >= 0.0, got '-0.1'"),
    ("--epsilon_high 0.0", "expected float > 0.0, got '0.0'"),
    ("--top_p 1.1", "expected float <= 1.0, got '1.1'"),
    ("--top_k -2", "expected int >= -1, got '-2'"),
    ("--max_steps ten", "expected int, got 'ten'"),
    ("--seed 4294967296", "expected int <= 4294967295, got '4294967296'"),
    ("--embedded_width 100", "expected int that's a multiple of 64, got '100'"),
    ("--embedded_width 0", "expected int >= 1, got '0'"),
    ("--beta small", "expected float, got 'small'"),
    ("--learning_rate inf", "expected a finite number, got 'inf'"),
    ("--beta nan", "expected float >= 0.0, got 'nan'"),
    ("--loss_type dr-grpo", "got 'dr-grpo'; did you mean dr_grpo?"),
    ("--train_type qlora", "expected one of lora, full, got 'qlora'; did you mean lora?"),
    ("--offload_model maybe", "expected true or false, got 'maybe'"),
    ("--vllm_server_port 0", "expected int >= 1, got '0'"),
    ("--sleep_level 3", "expected int <= 2, got '3'"),
    (
        "--temperature 0",
        "expected float > 0.0, got '0': at 0 all completions of a group are equal; try 1.0",
    ),
    ("--learning_rte 1", "unknown flag --learning_rte: did you mean --learning_rate?"),
    ("--num-generations=4", "unknown flag --num-generations: did you mean --num_generations"),
    ("--lear 1", "unknown flag --lear"),
    ("--xyzzy", "unknown flag --xyzzy: see --help for all flags"),
    ("--overlap_sync true", "--overlap_sync is gone: weights go to vLLM's own server in"),
    ("--report_to wandb", "--report_to is gone: metrics.jsonl of a recorded run has"),
    ("--eval_steps 5", "--eval_steps is gone: a run with --model CHECKPOINT"),
    ("--vllm_enable_lora", "--vllm_enable_lora is gone: adapters are merged into what"),
    ("surplus", "'surplus' does not belong to a flag"),
    ("--reward_funcs", "expected at least one argument"),
    # what cannot work together
    (
        "--steps_per_generation 3 --gradient_accumulation_steps 2",
        "2; valid values here: 2, 4, 6, ...",
    ),
    (
        "--num_generations 5 --per_device_train_batch_size 6",
        "batch of 12 (= 2 ranks x --per_device_train_batch_size 6 x --steps_per_generation 1)",
    ),
    ("--num_generations 5 --per_device_train_batch_size 6", "; valid values here: 2, 3, 4, 6, 12"),
    (
        "--num_generations 50 --per_device_train_batch_size 1260",
        "here: 28, 30, 35, 36, 40, 42, 45, 56, 60, 63, 70, 72",
    ),
    ("--rollout_importance_sampling_mode token_mask", "add --use_vllm true"),
    (
        "--vllm_max_model_len 64 --max_completion_length 64 --use_vllm true --vllm_mode colocate",
        "--vllm_max_model_len 64 leaves no room for a prompt",
    ),
    (
        "--sleep_level 1 --use_vllm true --vllm_mode server",
        "--sleep_level works with --vllm_mode colocate only",
    ),
    ("--reward_timeout 60 --ddp_timeout 60", "must be below --ddp_timeout 60"),
    ("--freeze_vit true --freeze_aligner true --freeze_llm true", "leave no weight to train"),
]
ALLOWED = [
    ("--top_k -1", "top_k", -1),
    ("--max_steps 0", "max_steps", 0),
    ("--epsilon_high none", "epsilon_high", None),
    ("--save_total_limit None", "save_total_limit", None),
    ("--top_p 1", "top_p", 1.0),
    ("--warmup_ratio 0", "warmup_ratio", 0.0),
    ("--seed 4294967295", "seed", 4294967295),
    ("--embedded_width 192", "embedded_width", 192),
    ("--num_generations 2", "num_generations", 2),
    ("--scale_rewards none", "scale_rewards", "none"),
    (
        "--vllm_max_model_len 65 --max_completion_length 64 --use_vllm true --vllm_mode colocate",
        "vllm_max_model_len",
        65,
    ),
    ("--sleep_level 0 --use_vllm true --vllm_mode server", "sleep_level", 0),
    ("--reward_timeout 59 --ddp_timeout 60", "reward_timeout", 59.0),
    ("--max_pixels 1", "max_pixels", 1),
    ("--freeze_vit true --freeze_aligner true --freeze_llm false", "freeze_llm", False),
    ("--reward_funcs accuracy --reward_weights 2", "reward_weights", [2.0]),
]


@pytest.mark.parametrize(("flags", "words"), REFUSED)
def test_a_refusal_names_the_flag_and_a_way_out(flags: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(flags.split(), 2)
    assert flags.split(maxsplit=1)[0].partition("=")[0] in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(("flags", "option", "value"), ALLOWED)
def test_values_at_their_limits_are_allowed(flags: str, option: str, value: object) -> None:
    assert getattr(parse(flags.split(), 2), option) == value


def test_how_large_a_batch_of_one_has_to_be_for_a_group_is_said() -> None:
    with pytest.raises(ConfigError, match="raise --per_device_train_batch_size to 4 or a multiple"):
        parse(["--num_generations", "4", "--per_device_train_batch_size", "1"], 1)
