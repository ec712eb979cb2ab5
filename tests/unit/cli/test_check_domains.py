"""What `check` knows, and that it says neither yes nor no, nor what is not so, of the rest."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli import main
from tests.unit.cli.attached import Captured

SEVEN = "Qwen/Qwen2.5-7B-Instruct"
SWIFT = (
    f"NPROC_PER_NODE=8 swift rlhf --model {SEVEN} --dataset a/b --reward_funcs format --rlhf_type "
)
TRL = f"--model_name_or_path {SEVEN} --dataset_name a/b"
VERL = (
    f"actor_rollout_ref.model.path={SEVEN} actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 "
)
MAIN_PPO = f"python -m verl.trainer.main_ppo {VERL}algorithm.adv_estimator="
OPENRLHF = (
    f"python -m openrlhf.cli.train_ppo_ray --pretrain {SEVEN} --prompt_data a/b "
    "--actor_num_gpus_per_node 8 --ref_num_gpus_per_node 8 --colocate_all_models "
    "--vllm_num_engines 8 --n_samples_per_prompt 8 --remote_rm_url http://x --advantage_estimator "
)
KNOWN = (
    f"{SWIFT}grpo",
    f"accelerate launch --num_processes 8 -m trl.scripts.grpo {TRL}",
    *(f"{MAIN_PPO}{name}" for name in ("grpo", "rloo", "reinforce_plus_plus", "remax")),
    f"{MAIN_PPO}gae",
    f"{MAIN_PPO}grpo critic.enable=true",
    f"{MAIN_PPO}grpo actor_rollout_ref.rollout.quantization=fp8",
    *(f"{OPENRLHF}{name}" for name in ("group_norm", "rloo", "reinforce", "dr_grpo", "gae")),
)
UNKNOWN = (
    *(f"{SWIFT}{kind}" for kind in ["dpo", "kto", "ppo", "gkd", "rm", "orpo", "simpo", "cpo"]),
    f"swift sft --model {SEVEN} --dataset a/b",
    f"swift pt --model {SEVEN} --dataset a/b",
    f"NPROC_PER_NODE=8 megatron sft --model {SEVEN}",
    *(f"trl {kind} {TRL}" for kind in ["sft", "dpo", "kto", "rloo", "reward"]),
    f"{MAIN_PPO}gae reward_model.enable=true",
    f"{MAIN_PPO}grpo reward_model.enable=true",
    f"{MAIN_PPO}grpo actor_rollout_ref.rollout.quantization=torchao",
    f"{MAIN_PPO.replace('rollout.name=vllm', 'rollout.name=trtllm')}grpo",
    f"python -m verl.trainer.sft_trainer model.path={SEVEN}",
    f"python -m verl.experimental.fully_async_policy.fully_async_main {VERL}",
    f"{OPENRLHF.replace('train_ppo_ray', 'train_ppo')}rloo",
    f"{OPENRLHF}rloo --reward_pretrain {SEVEN}",
    *(
        f"deepspeed --module openrlhf.cli.train_{kind} --pretrain {SEVEN}"
        for kind in ("sft", "dpo")
    ),
    f"python train.py --actor-num-gpus-per-node 8 --rollout-num-gpus 8 --hf-checkpoint {SEVEN}",
    "uv run examples/run_grpo_math.py --config x.yaml",
    f"python -m skyrl_train.entrypoints.main_base trainer.policy.model.path={SEVEN}",
    "python -m areal.launcher.local x.py --config x.yaml",
    "uv run rl @ x.toml",
    "torchrun --nproc_per_node 8 plain.py --model_name_or_path x",
    "python sloth.py",
)
SCRIPTS = {
    "plain.py": "import torch\n",
    "sloth.py": "import unsloth\nfrom trl import GRPOConfig\nGRPOConfig(num_generations=4)\n",
    "made.py": "from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer('m', GRPOConfig(**known))\n",
}


@pytest.fixture(autouse=True)
def _folder(bare: Path) -> None:
    for name, text in SCRIPTS.items():
        (bare / name).write_text(text)


def checked(capsys: Captured, command: str) -> tuple[int, dict[str, Any], str]:
    options = ["check", "--gpus", "8xA100-80G"]
    main([*options, "--json", "--", *shlex.split(command)])
    document = json.loads(capsys.readouterr().out)
    code = main([*options, "--", *shlex.split(command)])
    return code, document, capsys.readouterr().out


@pytest.mark.parametrize("command", UNKNOWN)
def test_outside_there_is_no_yes_no_no_and_no_number(command: str, capsys: Captured) -> None:
    code, document, text = checked(capsys, command)
    assert (code, document["verdict"]) == (0, "not-modelled")
    assert text.startswith("Not modeled: ")
    assert not re.search(r"\bNo:|GiB|\d% sure|\bfits?\b|out of memory", text)
    assert (document["memory"], document["fix"], document["room"]) == (None, None, [])


@pytest.mark.parametrize("command", KNOWN)
def test_inside_the_interval_decides_and_there_is_no_percentage(
    command: str, capsys: Captured
) -> None:
    _, document, text = checked(capsys, command)
    assert document["verdict"] in ("fits", "tight", "oom", "invalid"), document["headline"]
    assert not re.search(r"\d% sure|probability", text + json.dumps(document))
    for pool in document["memory"]["pools"]:
        reach = [(phase["low_bytes"], phase["high_bytes"]) for phase in pool["phases"]]
        fits = all(high <= pool["capacity_bytes"] for _, high in reach)
        fails = any(low > pool["capacity_bytes"] for low, _ in reach)
        assert pool["state"] in ("invalid", "oom" if fails else "fits" if fits else "tight")


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node 8 gone.py --model_name_or_path x --num_generations 7",
        "torchrun --nproc_per_node 8 made.py --model_name_or_path x",
        f"swift rlhf gone.yaml --model {SEVEN}",
        f"{SWIFT}grpo --deepspeed gone.json",
        f"trl grpo {TRL} --config gone.yaml",
        f"swift rlhf --rlhf_type grpo --model {SEVEN} ...",
    ],
)
def test_what_was_not_read_is_unknown(command: str, capsys: Captured) -> None:
    code, document, text = checked(capsys, command)
    assert (code, document["verdict"], document["memory"]) == (0, "unknown", None)
    assert text.startswith("Unknown: ")
    assert "GiB" not in text
    assert all(not flaw["id"].startswith("GL") for flaw in document["flaws"])


MANY = (
    (
        f"{SWIFT}grpo --use_vllm true --vllm_mode colocate --sleep_level 1 "
        "--vllm_max_model_len 2048 --max_completion_length 2048 --temperature 0 --bf16 true "
        "--fp16 true --num_generations 7 "
        "--learning_rate 1e-3 --tuner_type full --ref_model x --offload_model true --save_steps 5"
    ),
    (
        f"{MAIN_PPO}grpo actor_rollout_ref.actor.use_dynamic_bsz=true data.train_batch_size=8 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=64 data.max_response_length=90000"
    ),
    f"{OPENRLHF}group_norm --vllm_enable_sleep --train_batch_size 100 --async_train",
)


@pytest.mark.parametrize("command", MANY)
def test_a_setting_that_is_left_out_is_in_no_sentence(command: str, capsys: Captured) -> None:
    begin, *settings = re.split(r"\s+(?=--|[a-z_]+\.[a-z_.]+=)", command)
    assert len(settings) > 4
    for left_out in settings:
        stripped = " ".join([begin, *(each for each in settings if each is not left_out)])
        _, document, _ = checked(capsys, stripped)
        flaws = document["flaws"]
        said = [text for flaw in flaws for text in (flaw["headline"], *flaw["evidence"])]
        assert not any(left_out in text for text in said), left_out
        assert left_out not in [flaw["said"]["text"] for flaw in flaws if flaw["said"]]


NAMELESS = f"{MAIN_PPO.replace('actor_rollout_ref.rollout.name=vllm ', '')}grpo"
LARGE = f"{MAIN_PPO}grpo actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=512 "
OLDER = (
    MAIN_PPO.replace("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 ", "")
    + "grpo actor_rollout_ref.actor.ppo_micro_batch_size=1024 data.train_batch_size=4096 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=4096 data.max_response_length=8192"
)
IMAGES = OPENRLHF.replace(SEVEN, "Qwen/Qwen2.5-VL-7B-Instruct")


@pytest.mark.parametrize(
    ("command", "said", "not_said"),
    [
        (f"{SWIFT}grpo --stage grpo", "No: ms-swift", "lets it pass"),
        (f"{SWIFT}grpo --stage grpo --ignore_args_error true", "lets it pass", "No: "),
        (f"{MAIN_PPO}grpo data.max_prompt_length=4096 data.max_obs_length=500", "max_obs_length",
         "data.max_prompt_length=500"),
        ((f"deepspeed --module openrlhf.cli.train_ppo --pretrain {SEVEN} --train_batch_size 128 "
         "--micro_train_batch_size 3 --prompt_data x"), "--train_batch_size 24", "no flag"),
        (f"{LARGE} data.train_batch_size=4096 data.max_response_length=8192", "smaller passes",
         "grad_accumulation"),
        (f"{SWIFT}grpo --tuner_type full --per_device_train_batch_size 64 --max_length 8192",
         "raise --gradient_accumulation_steps", "train.grad_accumulation"),
        (f"{IMAGES}group_norm --prompt_max_len 1024", "smaller images", "MAX_PIXELS"),
        (NAMELESS, "not verified: actor_rollout_ref.rollout.name", "No: "),
        (f"--version verl=0.9.1 -- {NAMELESS}", "No: actor_rollout_ref.rollout.name", "probably"),
        (OLDER, "in place of actor_rollout_ref.actor.ppo_micro_batch_size", "No: "),
        (f"{MAIN_PPO}gae trainer.save_freq=5", "each checkpoint takes 213 GB", "107 GB"),
    ],
)  # fmt: skip
def test_statements(command: str, said: str, not_said: str, capsys: Captured) -> None:
    dashes = [] if " -- " in command else ["--"]
    main(["check", "--gpus", "8xH100-80G", *dashes, *shlex.split(command)])
    text = capsys.readouterr().out
    assert said in text
    assert not_said not in text
