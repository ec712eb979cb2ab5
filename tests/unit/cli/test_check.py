"""`grpo-doctor check`: the first line, exit codes, and what people pasted."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from grpo_doctor.cli import main

PASTED = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-7B-Instruct --train_type lora "
    "--deepspeed zero2 --use_vllm true --vllm_gpu_memory_utilization 0.8 --vllm_max_model_len 2048 "
    "--max_length 2048 --max_completion_length 1024 --per_device_train_batch_size 2 "
    "--gradient_accumulation_steps 8 --num_generations 8"
)
SMALL = (
    "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct "
    "--tuner_type lora --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 "
    "--sleep_level 1 --deepspeed zero2 --max_length 1024 --max_completion_length 1024"
)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NPROC_PER_NODE", "NNODES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def check(command: str, *options: str) -> int:
    return main(["check", *options, "--", *shlex.split(command)])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_four_24_gb_cards_run_out_of_memory_and_zero3_mends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"NPROC_PER_NODE=4 {PASTED}"
    assert check(command, "--gpus", "4x3090", "--version", "ms-swift=3.4.0") == 9
    out = lines(capsys)
    assert out[0].startswith("No: out of memory")
    fix = out[next(i for i, line in enumerate(out) if line.startswith("To make it fit")) :]
    assert any("--deepspeed zero3" in line for line in fix)


def test_full_training_without_deepspeed_gets_a_preset_and_not_another_experiment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = (
        "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct "
        "--train_type full --use_vllm true --vllm_mode server --vllm_server_host 10.0.0.2"
    )
    assert check(command, "--gpus", "4xA100-40G", "--version", "ms-swift=3.8.1") == 9
    out = lines(capsys)
    fix = out[out.index("", out.index(next(x for x in out if x.startswith("To make it fit")))) - 1]
    assert fix.split()[:2] == ["--deepspeed", "zero2_offload"]
    assert "among ranks; the optimizer step runs on the host; " in fix


def test_a_preset_that_there_is_is_named_and_otherwise_the_entry_of_its_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = PASTED.replace("lora --deepspeed zero2", "full --deepspeed zero1")
    options = ("--gpus", "4xA100-40G", "--version", "ms-swift=3.8.1", "--json")
    assert check(f"NPROC_PER_NODE=4 {command}", *options) == 9
    document = json.loads(capsys.readouterr().out)
    settings = {setting["knob"]: setting["spelling"] for setting in document["fix"]["settings"]}
    assert settings["deepspeed.stage"] == "--deepspeed zero3"
    assert "offload_optimizer.device" in settings["deepspeed.offload_optimizer"]
    alone = {change["settings"][0]["knob"] for change in document["relief"]}
    assert "deepspeed.offload_param" not in alone  # below ZeRO-3 it does nothing


def test_without_the_variable_it_is_judged_as_with_one_process_per_gpu_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check(PASTED, "--gpus", "4x3090", "--version", "ms-swift=3.4.0") == 9
    out = lines(capsys)
    assert out[0].startswith("No: out of memory")
    assert any("NPROC_PER_NODE is not set: ms-swift starts one process" in line for line in out)


def test_with_the_newest_version_the_renamed_flag_comes_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"NPROC_PER_NODE=4 {PASTED}"
    assert check(command, "--gpus", "4x3090", "--version", "ms-swift=4.6.0") == 9
    assert lines(capsys)[0] == "No: --train_type is --tuner_type in ms-swift 4.6.0"


def test_one_process_on_four_gpus_is_said_before_anything_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "NPROC_PER_NODE=1 CUDA_VISIBLE_DEVICES=0,1,2,3 " + PASTED.replace("zero2", "zero3")
    assert check(command, "--gpus", "4x3090", "--version", "ms-swift=3.4.0") == 9
    out = lines(capsys)
    assert out[0] == "one process on four GPUs"
    assert not any("per_device_train_batch_size 1" in line for line in out)
    assert not any("Nothing that is known" in line for line in out)


def test_a_launch_that_fits_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(SMALL, "--gpus", "8xA100-80G", "--version", "ms-swift=4.6.0") == 0
    assert lines(capsys)[0].startswith("Yes: it fits")


def test_without_gpus_the_rules_still_speak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: None)
    assert check(SMALL + " --num_generations 7") == 9
    assert "7 generations do not divide" in lines(capsys)[0]
    assert check(SMALL) == 0
    assert "say the GPUs, as in --gpus 8xA100-80G" in lines(capsys)[0]


def test_fail_on_ends_with_6(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--gpus", "8xA100-80G", "--version", "ms-swift=4.6.0")
    assert check(SMALL, *options, "--fail-on", "info") == 6  # the timeout of 208 days
    assert check(SMALL, *options, "--fail-on", "high") == 0
    assert capsys.readouterr().out


def test_json_has_the_flaws_the_ledger_and_where_things_were_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--gpus", "4x3090", "--version", "ms-swift=3.4.0", "--json")
    assert check(f"NPROC_PER_NODE=4 {PASTED}", *options) == 9
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"]) == (1, "invalid")
    assert document["launch"]["settings"]["train.type"] == "lora"
    assert document["launch"]["said"]["train.type"]["argument"] == 7
    assert document["memory"]["pools"][0]["phases"]
    spelled = [setting["spelling"] for setting in document["fix"]["settings"]]
    assert "--deepspeed zero3" in spelled


def test_github_and_sarif_point_to_the_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = (
        "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo \\\n  --model m \\\n  --num_generations 7\n"
    )
    (tmp_path / "run.sh").write_text(script)
    assert check("run.sh", "--gpus", "4x24G", "--format", "github") == 9
    assert any(
        line.startswith("::error file=run.sh,line=3::7 generations do not divide")
        for line in lines(capsys)
    )
    assert check("run.sh", "--gpus", "4x24G", "--format", "sarif") == 9
    run = json.loads(capsys.readouterr().out)["runs"][0]
    result = next(result for result in run["results"] if result["ruleId"] == "GL004")
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3}


def test_a_server_beside_the_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    command = SMALL.replace("colocate", "server") + " --vllm_server_host 127.0.0.1"
    server = "swift rollout --model Qwen/Qwen2.5-7B-Instruct --vllm_tensor_parallel_size 8"
    options = ("--gpus", "8xA100-80G", "--rollout-gpus", "4xA100-80G", "--with", server)
    assert check(command, *options, "--version", "ms-swift=4.6.0") == 9
    assert "28 attention heads do not divide over 8" in "\n".join(lines(capsys))


def test_the_largest_value_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--gpus", "8xA100-80G", "--version", "ms-swift=4.6.0", "--json")
    assert check(SMALL, *options, "--solve", "per_device_train_batch_size") == 0
    solved = json.loads(capsys.readouterr().out)["solved"]
    assert solved["knob"] == "train.micro_batch"
    assert solved["value"] >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "give the launch after `--`"),
        (["check", "--", "ls"], "no training command"),
        (["check", "--gpus", "4xFoo", "--", "swift", "rlhf"], "say its memory"),
        (["check", "--gpus", "0x24G", "--", "swift", "rlhf"], "such as 8xA100-80G"),
        (["check", "--version", "swift", "--", "swift", "rlhf"], "PACKAGE=VERSION"),
        (["check", "--nodes", "0", "--", "swift", "rlhf"], "give 1 or more"),
        (["check", "--", "no.sh"], "No such file"),
    ],
)
def test_wrong_usage_is_a_message(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_model_is_said_and_the_rules_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = SMALL.replace("Qwen/Qwen2.5-7B-Instruct", "acme/Strange-13X")
    assert check(command, "--gpus", "8xA100-80G", "--version", "ms-swift=4.6.0") == 0
    out = lines(capsys)
    assert "acme/Strange-13X is unknown" in out[0]
