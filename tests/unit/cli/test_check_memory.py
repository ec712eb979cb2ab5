"""The ledger of a launch, where the machine is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.cli.check_memory import Gpus, MemoryCheck, Request
from grpo_doctor.launches import read
from grpo_doctor.memory import ledger_of

LAUNCH = read(
    ["NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B-Instruct"],
    environment={},
    versions={"ms-swift": "4.6.0"},
)
GIB = 2**30


LAUNCH_TRL = "accelerate launch"
CARDS = Gpus(8, "A100-80G", 80 * GIB)


def memory_check(gpus: Gpus | None, unknown: str | None = None) -> MemoryCheck:
    return MemoryCheck(LAUNCH, Request(gpus, is_here=False), unknown)


@pytest.mark.parametrize(
    ("gpus", "is_known"), [(CARDS, True), (Gpus(8, "0G", 0), False), (None, False)]
)
def test_the_gpus_and_their_size_are_needed(gpus: Gpus | None, is_known: bool) -> None:
    memory = memory_check(gpus)
    assert (memory.ledger is not None) is is_known
    assert (memory.part is not None) is is_known
    question = "memory not estimated: pass the GPUs, such as --gpus 8xA100-80G"
    assert memory.reason == (None if is_known else question)
    assert (memory.state == "unknown") is not is_known
    known = memory_check(None, "there is no model")  # that comes first
    assert known.reason == "memory not estimated: there is no model"


@pytest.mark.parametrize("size", [10 * GIB, 80 * GIB])
def test_the_longest_prompts_that_fit_are_named_where_nothing_limits_them(size: int) -> None:
    memory = memory_check(Gpus(8, "X", size))
    (sentence,) = memory.assumed()
    longest = int(sentence.removesuffix(" tokens").rpartition(" ")[2])
    trainer = memory.job.trainer
    assert trainer is not None
    assert ledger_of(replace(trainer, prompt_tokens=longest)).state == "fits"
    longer = ledger_of(replace(trainer, prompt_tokens=longest + 256))
    assert longer.state != "fits" or longest == trainer.model.max_positions


@pytest.mark.parametrize(
    ("stated", "is_here", "bytes_"),
    [
        (None, False, []),
        (64 * GIB, False, [64 * GIB]),
        (None, True, [512 * GIB]),
        (64 * GIB, True, [64 * GIB]),
    ],
)
def test_the_memory_of_the_host_is_what_was_stated_or_that_of_this_machine(
    stated: int | None, is_here: bool, bytes_: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.check_memory._memory_here", lambda: 512 * GIB)
    part = MemoryCheck(LAUNCH, Request(CARDS, is_here=is_here, host_bytes=stated), None).part
    assert part is not None
    assert [pool.capacity_bytes for pool in part.pools if pool.role == "host"] == bytes_


@pytest.mark.parametrize(
    ("launcher", "spelling"),
    [
        ("trl grpo", "--accelerate_config zero2"),
        ("trl grpo --accelerate_config zero3", "--accelerate_config zero2"),
        ("trl grpo --config trl.yaml", "--accelerate_config zero2"),
        (LAUNCH_TRL, "accelerate launch --use_deepspeed --zero_stage 2"),
        (f"{LAUNCH_TRL} --use_deepspeed --zero_stage 3", "accelerate launch --zero_stage 2"),
        (f"{LAUNCH_TRL} --config_file ds.yaml", "set zero_stage: 2 in ds.yaml"),
    ],
)
def test_where_a_job_of_trl_gets_its_zero_stage(
    launcher: str, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds.yaml").write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n")
    Path("trl.yaml").write_text("accelerate_config: zero3\n")
    program = " -m trl.scripts.grpo" if launcher.startswith(LAUNCH_TRL) else ""
    launch = read([f"{launcher}{program} --model_name_or_path Qwen/Qwen2.5-7B"], environment={})
    memory = MemoryCheck(launch, Request(CARDS, is_here=False), None)
    changes = [memory.fix] if memory.fix is not None else memory.room
    assert spelling in [setting.spelling for change in changes for setting in change.settings]


def test_settings_of_a_script_are_spelled_as_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = "'out', fsdp='full_shard', bf16=True, use_vllm=True, vllm_mode='colocate'"
    Path("train.py").write_text(
        f"from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer(model='Qwen/Qwen2.5-7B', "
        f"args=GRPOConfig({arguments}))\n"
    )
    launch = read(["torchrun --nproc-per-node 8 train.py"], environment={})
    memory = MemoryCheck(launch, Request(CARDS, is_here=False), None)
    settings = [setting.spelling for change in memory.room for setting in change.settings]
    assert settings[0] == "vllm_gpu_memory_utilization=0.5"
