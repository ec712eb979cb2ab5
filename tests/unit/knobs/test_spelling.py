"""Settings as each framework takes them: one example of every form."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from grpo_doctor import knobs
from grpo_doctor.knobs.syntax import look_up, options_of, overrides_of

ROLLOUT = "actor_rollout_ref.rollout."
ACTOR = "actor_rollout_ref.actor."


@pytest.mark.parametrize(
    ("framework", "version", "knob", "value", "expected"),
    [
        # TRL: renamed, removed, a level for a switch, a number for what was true or false
        ("trl", "0.17.0", "vllm.max_model_len", 4096, "--vllm_max_model_len 4096"),
        ("trl", "0.20.0", "vllm.max_model_len", 4096, None),
        ("trl", "1.16.0", "vllm.max_model_len", 4096, "--vllm_max_model_length 4096"),
        (None, None, "vllm.max_model_len", 4096, None),
        ("trl", "0.24.0", "vllm.sleep_level", 1, "--vllm_enable_sleep_mode true"),
        ("trl", "1.16.0", "vllm.sleep_level", 0, "--vllm_enable_sleep_mode false"),
        ("trl", None, "vllm.sleep_level", 0, "--vllm_enable_sleep_mode false"),
        ("trl", "0.21.0", "train.scale_rewards", "none", "--scale_rewards false"),
        ("trl", "0.21.0", "train.scale_rewards", "batch", None),
        ("trl", "1.16.0", "train.scale_rewards", "batch", "--scale_rewards batch"),
        ("trl", None, "train.scale_rewards", "none", None),  # `none` or `false`: by version
        ("trl", "0.24.0", "train.use_liger", True, "--use_liger_loss true"),
        ("trl", "1.16.0", "train.use_liger", True, "--use_liger_kernel true"),
        ("trl", "1.16.0", "vllm.enforce_eager", False, None),  # no such field
        ("trl", "1.16.0", "reward.weights", "1.0 0.5", "--reward_weights 1.0 0.5"),
        ("trl", "1.16.0", "rollout.importance_mode", "token_mask",
         "--vllm_importance_sampling_correction true --vllm_importance_sampling_mode token_mask"),
        ("trl", "1.16.0", "rollout.importance_mode", "none",
         "--vllm_importance_sampling_correction false"),
        # verl: overrides without dashes, a key that must be added, a gate, a list, a null
        ("verl", "0.9.1", "vllm.gpu_memory_utilization", 0.6,
         ROLLOUT + "gpu_memory_utilization=0.6"),
        ("verl", "0.9.1", "dataload.num_workers", 4, "data.dataloader_num_workers=4"),
        ("verl", "0.4.0", "dataload.num_workers", 4, "++data.dataloader_num_workers=4"),
        ("verl", None, "dataload.num_workers", 4, None),
        ("verl", "0.9.1", "vllm.sleep_level", 0, ROLLOUT + "free_cache_engine=false"),
        ("verl", "0.9.1", "train.beta", 0.0, ACTOR + "use_kl_loss=false"),
        ("verl", "0.9.1", "train.beta", 0.01, f"{ACTOR}use_kl_loss=true {ACTOR}kl_loss_coef=0.01"),
        ("verl", "0.9.1", "checkpoint.save_only_model", True,
         f"'{ACTOR}checkpoint.save_contents=[model]'"),
        ("verl", "0.4.0", "checkpoint.save_only_model", True,
         f"'{ACTOR}checkpoint.contents=[model]'"),
        ("verl", "0.9.1", "rollout.importance_correction", False,
         "algorithm.rollout_correction.rollout_is=null"),
        ("verl", "0.6.0", "rollout.importance_correction", True,
         "algorithm.rollout_is=true algorithm.rollout_is_threshold=2"),
        ("verl", "0.9.1", "rollout.async", True, "trainer.v1.trainer_mode=colocate_async"),
        ("verl", "0.8.0", "rollout.async", True, None),
        ("verl", "0.9.1", "deepspeed.stage", 2, None),  # FSDP
        ("verl", "0.9.1", "train.scale_rewards", "batch", None),
        # OpenRLHF: switches, renamed with dots, a negation, two switches for one setting
        ("openrlhf", "0.10.1", "deepspeed.offload_optimizer", True, "--adam_offload"),
        ("openrlhf", "0.10.2", "deepspeed.offload_optimizer", True, "--ds.adam_offload"),
        ("openrlhf", "0.11.2", "deepspeed.offload_optimizer", False, "(remove --ds.adam_offload)"),
        ("openrlhf", None, "deepspeed.offload_optimizer", True, None),
        ("openrlhf", "0.11.2", "vllm.sleep_level", 1, "--vllm.enable_sleep"),
        ("openrlhf", "0.11.2", "vllm.sleep_level", 2, None),
        ("openrlhf", "0.11.2", "train.scale_rewards", "none", "--algo.advantage.no_std_norm"),
        ("openrlhf", "0.11.2", "train.scale_rewards", "group",
         "(remove --algo.advantage.no_std_norm)"),
        ("openrlhf", "0.11.2", "checkpoint.save_only_model", True,
         "--ckpt.disable_ds --ckpt.save_hf"),
        ("openrlhf", "0.11.2", "checkpoint.save_only_model", False, "(remove --ckpt.disable_ds)"),
        ("openrlhf", "0.11.2", "train.epsilon_high", 0.28, None),  # would set the lower one too
        ("openrlhf", "0.11.2", "train.learning_rate", 1e-6, "--actor.adam.lr 1e-06"),
        # ms-swift: a key in an option that takes JSON, a gap in the versions
        ("ms-swift", "4.6.0", "vllm.max_num_batched_tokens", 8192,
         "--vllm_engine_kwargs '{\"max_num_batched_tokens\": 8192}'"),
        ("ms-swift", "3.6.0", "vllm.max_num_seqs", 64, None),
        ("ms-swift", "3.7.0", "vllm.max_num_seqs", 64, "--vllm_max_num_seqs 64"),
        ("ms-swift", None, "vllm.max_num_seqs", 64, None),
        ("ms-swift", "3.9.0", "train.type", "full", "--train_type full"),
        ("ms-swift", "4.0.0", "train.type", "full", "--tuner_type full"),
        ("ms-swift", "4.6.0", "train.type", "full", "--tuner_type full"),
        ("ms-swift", None, "train.type", "full", None),  # some version refuses either name
        ("ms-swift", "3.9.0", "offload.gc_collect", False, "--gc_collect_after_offload false"),
        ("ms-swift", "3.10.0", "offload.gc_collect", False, None),
        ("ms-swift", "3.2.0", "offload.model", False, None),
        ("ms-swift", "4.6.0", "offload.optimizer", False, "--offload_optimizer false"),
        ("ms-swift", None, "offload.optimizer", False, "--offload_optimizer false"),
        ("ms-swift", "3.4.0", "vllm.tensor_parallel_size", 2, "--tensor_parallel_size 2"),
        ("ms-swift", "3.5.0", "vllm.tensor_parallel_size", 2, "--vllm_tensor_parallel_size 2"),
        ("ms-swift", "4.6.0", "vllm.gpu_memory_utilization", 0.55,
         "--vllm_gpu_memory_utilization 0.55"),
        ("ms-swift", "4.6.0", "deepspeed.stage", 2, None),  # read from the preset, not a flag
        # DeepSpeed's JSON and vLLM's own command
        ("deepspeed", None, "deepspeed.offload_optimizer", False,
         '"zero_optimization.offload_optimizer.device": "none"'),
        ("deepspeed", None, "deepspeed.stage", 2, '"zero_optimization.stage": 2'),
        ("vllm", None, "vllm.enable_prefix_caching", True, "--enable-prefix-caching"),
        ("vllm", None, "vllm.enable_prefix_caching", False, "--no-enable-prefix-caching"),
        ("vllm", None, "vllm.max_num_seqs", 64, "--max-num-seqs 64"),
    ],
)  # fmt: skip
def test_settings_as_printed(
    framework: str | None, version: str | None, knob: str, value: Any, expected: str | None
) -> None:
    assert knobs.spell(framework or "trl", version, knob, value) == expected


def test_a_path_with_a_space_stays_one_word() -> None:
    text = knobs.spell("ms-swift", "4.6.0", "deepspeed.preset", "my runs/ds.json")
    assert text is not None
    assert shlex.split(text) == ["--deepspeed", "my runs/ds.json"]


VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 "
    "++actor_rollout_ref.rollout.free_cache_engine=False data.train_batch_size=1024 "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 "
    '\'actor_rollout_ref.actor.checkpoint.save_contents=["model", "hf_model"]\' '
    "trainer.save_freq=20 trainer.logger=['console','wandb'] --config-name ppo_trainer"
)


def test_a_verl_launch() -> None:
    assert knobs.from_command("verl", "0.9.1", shlex.split(VERL)) == {
        "vllm.use": True,
        "rollout.engine": "vllm",
        "vllm.sleep_level": 0,
        "rollout.num_generations": 5,
        "rollout.prompts": 1024,
        "train.beta": 0.001,
        "checkpoint.save_steps": 20,
        "checkpoint.save_only_model": True,
    }


@pytest.mark.parametrize(
    ("actor", "beta"),
    [
        ({"use_kl_loss": False, "kl_loss_coef": 0.001}, 0.0),
        ({"kl_loss_coef": 0.001}, 0.0),  # it counts only with the loss, which is off by default
        ({"use_kl_loss": True}, 0.001),
        ({"use_kl_loss": True, "kl_loss_coef": 0.04}, 0.04),
        ({}, None),
    ],
)
def test_a_value_behind_a_switch(actor: dict[str, Any], beta: float | None) -> None:
    config = {"actor_rollout_ref": {"actor": actor}}
    assert knobs.canonical("verl", "0.9.1", config).get("train.beta") == beta


def test_levels_of_a_configuration_and_dotted_names_are_the_same() -> None:
    flat = {"ds.zero_stage": 3, "vllm.enable_sleep": True, "rollout.n_samples_per_prompt": "8"}
    deep = {
        "ds": {"zero_stage": 3},
        "vllm": {"enable_sleep": True},
        "rollout": {"n_samples_per_prompt": 8},
    }
    expected = {"deepspeed.stage": 3, "vllm.sleep_level": 1, "rollout.num_generations": 8}
    assert knobs.canonical("openrlhf", "0.11.2", flat) == expected
    assert knobs.canonical("openrlhf", "0.11.2", deep) == expected


def test_an_openrlhf_launch() -> None:
    line = (
        "python3 -m openrlhf.cli.train_ppo_ray --ds.adam_offload --ds.zero_stage 3 "
        "--actor.eps_clip_low_high 0.2 0.28 --algo.advantage.is_correction_threshold 0.5 5.0 "
        "--vllm.gpu_memory_utilization 0.6 --train.colocate_all"
    )
    assert knobs.from_command("openrlhf", "0.11.2", shlex.split(line)) == {
        "deepspeed.stage": 3,
        "deepspeed.offload_optimizer": True,
        "vllm.mode": "colocate",
        "vllm.gpu_memory_utilization": 0.6,
        "rollout.importance_cap": 5.0,
        "train.epsilon_high": 0.28,
    }


def test_a_trl_launch_with_a_refused_default_and_json() -> None:
    line = "trl grpo --no_gradient_checkpointing --reward_weights 1.0 0.5 --vllm_mode colocate"
    assert knobs.from_command("trl", "1.16.0", shlex.split(line)) == {
        "train.gradient_checkpointing": False,
        "reward.weights": "1.0 0.5",
        "vllm.mode": "colocate",
    }
    engine = {"vllm_engine_kwargs": '{"max_num_batched_tokens": 4096, "seed": 1}'}
    assert knobs.canonical("ms-swift", "4.6.0", engine) == {"vllm.max_num_batched_tokens": 4096}
    assert knobs.canonical("ms-swift", "4.6.0", {"vllm_engine_kwargs": "{broken"}) == {}


@pytest.mark.parametrize(
    ("option", "high"),
    [("0.2 0.28", 0.28), (["0.2", "0.28"], 0.28), ("0.2", None), (["0.2"], None), (None, None)],
)
def test_one_of_several_values_of_an_option_is_a_setting(option: Any, high: float | None) -> None:
    values = knobs.canonical("openrlhf", None, {"actor.eps_clip_low_high": option})
    assert values.get("train.epsilon_high") == high


def test_a_value_that_the_table_does_not_know_is_absent() -> None:
    key = "actor_rollout_ref.actor.policy_loss.loss_mode"
    assert knobs.canonical("verl", "0.9.1", {key: "gpg"}) == {}
    assert knobs.canonical("verl", "0.9.1", {key: "gspo"}) == {"train.importance_level": "sequence"}


@pytest.mark.parametrize(
    ("framework", "version", "knob", "expected"),
    [
        ("trl", "0.14.0", "vllm.gpu_memory_utilization", 0.9),
        ("trl", "0.17.0", "vllm.gpu_memory_utilization", None),
        ("trl", "1.16.0", "vllm.gpu_memory_utilization", 0.3),
        ("verl", "0.8.0", "vllm.max_num_seqs", 1024),
        ("verl", None, "vllm.max_num_seqs", 256),
        ("verl", "0.9.1", "train.beta", 0.0),
        ("openrlhf", "0.11.2", "vllm.enable_prefix_caching", False),
        ("openrlhf", "0.6.3", "vllm.gpu_memory_utilization", 0.9),
        ("ms-swift", "3.4.0", "vllm.mode", None),
        ("ms-swift", "3.5.0", "vllm.mode", "colocate"),
        ("ms-swift", "4.0.0", "vllm.mode", None),
        ("ms-swift", "3.4.0", "run.collective_timeout_s", 1800),
        ("ms-swift", None, "run.collective_timeout_s", 18_000_000),
        ("ms-swift", "3.10.0", "dataload.prefetch_factor", 10),
        ("ms-swift", "4.6.0", "dataload.prefetch_factor", 2),
        ("ms-swift server", "3.9.0", "vllm.enable_prefix_caching", False),
    ],
)
def test_defaults(framework: str, version: str | None, knob: str, expected: Any) -> None:
    assert knobs.default(framework, version, knob) == expected


def test_a_command_lines_options_and_overrides() -> None:
    words = [
        "swift",
        "rlhf",
        "--",
        "--use_vllm",
        "true",
        "--reward-funcs",
        "a",
        "b",
        "--flag",
        "--x=1=2",
    ]
    words += ["--y=", "last", "--"]
    assert options_of(words) == {
        "use_vllm": "true",
        "reward_funcs": ["a", "b"],
        "flag": True,
        "x": "1=2",
        "y": ["", "last", "--"],
    }
    hydra = ["main.py", "a.b=1", "++c='x y'", "+d=2", "~e=", "--f=3", "9g=4"]
    assert overrides_of(hydra) == {"a.b": "1", "c": "x y", "d": "2", "e": ""}


def test_dots_are_part_of_a_key_or_levels() -> None:
    config = {"a.b": 1, "a": {"b": 2, "c": {"d": 3}}, "x.y": {"z": 4}}
    values = [look_up(config, key) for key in ("a.b", "a.c.d", "x.y.z", "a.b.c", "q", "a.q")]
    assert values == [1, 3, 4, None, None, None]
