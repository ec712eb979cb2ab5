"""What launches of other repositories got to read that was not so."""

from __future__ import annotations

import shlex

import pytest

from grpo_doctor.cli import main
from tests.unit.cli.test_check_domains import MAIN_PPO, OPENRLHF, SEVEN, SWIFT

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
def test_statements(
    command: str, said: str, not_said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dashes = [] if " -- " in command else ["--"]
    main(["check", "--gpus", "8xH100-80G", *dashes, *shlex.split(command)])
    text = capsys.readouterr().out
    assert said in text
    assert not_said not in text
