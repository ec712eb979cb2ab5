"""`grpo-doctor check`: the first line, exit codes, and what people pasted."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.cli import checking, main
from grpo_doctor.cli.check_memory import Gpus, Request
from grpo_doctor.launches import Launch
from grpo_doctor_reports.schema.check import CheckDocument
from tests.unit.cli.attached import Captured

PASTED = (
    "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-7B-Instruct --train_type lora "
    "--deepspeed zero2 --use_vllm true --vllm_gpu_memory_utilization 0.8 --vllm_max_model_len 2048 "
    "--max_length 2048 --max_completion_length 1024 --per_device_train_batch_size 2 "
    "--gradient_accumulation_steps 8 --num_generations 8 --dataset a/b --reward_funcs format"
)
SMALL = (
    "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct "
    "--dataset a/b --reward_funcs accuracy --tuner_type lora --use_vllm true "
    "--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 "
    "--sleep_level 1 --deepspeed zero2 --max_length 1024 --max_completion_length 1024"
)

RTX = ("--gpus", "4x3090", "--version", "ms-swift=3.4.0")
A100 = ("--gpus", "8xA100-80G", "--version", "ms-swift=4.6.0")


pytestmark = pytest.mark.usefixtures("bare")


def check(command: str, *options: str) -> int:
    return main(["check", *options, "--", *shlex.split(command)])


def lines(capsys: Captured) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_four_24_gb_cards_run_out_of_memory_and_zero3_mends_it(capsys: Captured) -> None:
    command = f"NPROC_PER_NODE=4 {PASTED}"
    assert check(command, *RTX) == 9
    out = lines(capsys)
    assert out[0].startswith("No: out of memory at startup: vLLM needs")
    fix = out[next(i for i, line in enumerate(out) if line.startswith("To make it fit")) :]
    assert any("--deepspeed zero3" in line for line in fix)


def test_full_training_without_deepspeed_gets_a_preset_and_not_another_experiment(
    capsys: Captured,
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
    capsys: Captured,
) -> None:
    command = PASTED.replace("lora --deepspeed zero2", "full --deepspeed zero1")
    options = ("--gpus", "4xA100-40G", "--version", "ms-swift=3.8.1")
    document = checked(capsys, f"NPROC_PER_NODE=4 {command}", *options)
    settings = {setting["knob"]: setting["spelling"] for setting in document["fix"]["settings"]}
    assert settings["deepspeed.stage"] == "--deepspeed zero3"
    assert "offload_optimizer.device" in settings["deepspeed.offload_optimizer"]
    alone = {change["settings"][0]["knob"] for change in document["relief"]}
    assert "deepspeed.offload_param" not in alone  # below ZeRO-3 it does nothing


def test_without_the_variable_it_is_judged_as_with_one_process_per_gpu_and_says_so(
    capsys: Captured,
) -> None:
    assert check(PASTED, *RTX) == 9
    out = lines(capsys)
    assert out[0].startswith("No: out of memory at startup: vLLM needs")
    assert any("NPROC_PER_NODE is not set: ms-swift starts one process" in line for line in out)


def test_with_the_newest_version_the_renamed_flag_comes_first(capsys: Captured) -> None:
    command = f"NPROC_PER_NODE=4 {PASTED}"
    assert check(command, "--gpus", "4x3090", "--version", "ms-swift=4.6.0") == 9
    assert lines(capsys)[0] == "No: --train_type is --tuner_type in ms-swift 4.6.0"


def test_what_the_version_decides_is_said_of_both(capsys: Captured) -> None:
    command = (
        "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --num_generations 7 "
        "--train_type full --deepspeed zero3 --use_vllm true --num_infer_workers 1 --dataset d "
        "--reward_funcs format"
    )
    assert check(f"NPROC_PER_NODE=7 {command}", "--gpus", "8xA100-80G") == 0
    said = lines(capsys)[0]
    assert said.startswith("It may not fit: peak ")
    assert "with ms-swift 3.5.3; it fits with 3.2.0, which takes these options too" in said
    unknown = command.replace("Qwen/Qwen2.5-7B-Instruct --num_generations 7", "no/such-model")
    assert check(unknown, "--gpus", "8xA100-80G") == 0
    assert lines(capsys)[0].startswith("Nothing stops it for certain, with ")


def test_one_process_on_four_gpus_is_said_before_anything_else(capsys: Captured) -> None:
    command = "NPROC_PER_NODE=1 CUDA_VISIBLE_DEVICES=0,1,2,3 " + PASTED.replace("zero2", "zero3")
    assert check(command, *RTX) == 9
    out = lines(capsys)
    assert out[0] == "No: one process on four GPUs"
    assert not any("per_device_train_batch_size 1" in line for line in out)
    assert not any("Nothing that is known" in line for line in out)


def test_without_gpus_the_rules_still_speak(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: None)
    assert check(SMALL + " --num_generations 7") == 9
    assert "is not divisible by num_generations 7" in lines(capsys)[0]
    assert check(SMALL) == 0
    assert "memory not estimated: pass the GPUs, such as --gpus 8xA100-80G" in lines(capsys)[0]


def test_fail_on_ends_with_6(capsys: Captured) -> None:
    assert check(SMALL, *A100, "--fail-on", "info") == 6  # the timeout of 208 days
    capsys.readouterr()
    assert check(SMALL, *A100, "--fail-on", "high") == 0
    assert lines(capsys)[0].startswith("It probably fits")


def test_json_has_the_flaws_the_ledger_and_where_things_were_said(capsys: Captured) -> None:
    assert check(f"NPROC_PER_NODE=4 {PASTED}", *RTX, "--json") == 9
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"]) == (2, "invalid")
    assert document["launch"]["settings"]["train.type"] == "lora"
    assert document["launch"]["said"]["train.type"]["argument"] == 7
    assert document["memory"]["pools"][0]["phases"]
    spelled = [setting["spelling"] for setting in document["fix"]["settings"]]
    assert "--deepspeed zero3" in spelled


def test_github_and_sarif_point_to_the_line(capsys: Captured, tmp_path: Path) -> None:
    script = (
        "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo \\\n  --model m \\\n  --num_generations 7\n"
    )
    (tmp_path / "run.sh").write_text(script)
    assert main(["check", "run.sh", "--gpus", "4x24G", "--format", "github"]) == 9  # without --
    assert any(
        line.startswith("::error file=run.sh,line=3::a rollout of ") for line in lines(capsys)
    )
    assert check("run.sh", "--gpus", "4x24G", "--format", "sarif") == 9
    run = json.loads(capsys.readouterr().out)["runs"][0]
    result = next(result for result in run["results"] if result["ruleId"] == "GL004")
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3}


def test_a_server_beside_the_trainer(capsys: Captured) -> None:
    command = SMALL.replace("colocate", "server") + " --vllm_server_host 127.0.0.1"
    server = "swift rollout --model Qwen/Qwen2.5-7B-Instruct --vllm_tensor_parallel_size 8"
    options = ("--gpus", "8xA100-80G", "--rollout-gpus", "4xA100-80G", "--with", server)
    assert check(command, *options, "--version", "ms-swift=4.6.0") == 9
    assert "28 attention heads are not divisible by 8" in "\n".join(lines(capsys))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "give a script, or a command after `--`"),
        (["check", "--", "ls"], "no training command"),
        (["check", "--gpus", "4xFoo", "--", "swift", "rlhf"], "or its memory, --gpus 8x80G"),
        (["check", "--gpus", "0x24G", "--", "swift", "rlhf"], "such as 8xA100-80G"),
        (["check", "--nodes", "0", "--", "swift", "rlhf"], "give 1 or more"),
        (["check", "--", "no.sh"], "No such file"),
    ],
)
def test_wrong_usage_is_a_message(arguments: list[str], words: str, capsys: Captured) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_an_unknown_model_is_said_and_the_rules_go_on(capsys: Captured) -> None:
    command = SMALL.replace("Qwen/Qwen2.5-7B-Instruct", "acme/Strange-13X")
    assert check(command, *A100) == 0
    out = lines(capsys)
    assert "acme/Strange-13X is unknown" in out[0]


NEWEST = ("--version", "ms-swift=4.6.0")
FULL = (
    SMALL.replace("lora", "full").replace("zero2", "zero3").replace("true", "false", 1)
).replace("--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --sleep_level 1 ", "")


def checked(capsys: Captured, command: str, *options: str) -> dict[str, Any]:
    check(command, *options, "--json")
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def knobs(changes: list[dict[str, Any]]) -> list[str]:
    return [setting["knob"] for change in changes for setting in change["settings"]]


def test_what_fits_has_room_and_what_does_not_gets_changes(capsys: Captured) -> None:
    fits = checked(capsys, SMALL, *A100)
    assert (fits["verdict"], fits["fix"], fits["relief"]) == ("fits", None, [])
    assert fits["headline"].startswith("It probably fits: peak ")
    assert fits["headline"].endswith(" of 79.2 GiB per GPU, in the rollout phase")
    assert "train.micro_batch" not in knobs(fits["room"])  # it would not move the peak
    longer = SMALL.partition(" --use_vllm")[0] + " --max_completion_length 4096"
    large = checked(capsys, longer, *A100)
    assert "train.micro_batch" in knobs(large["room"])
    full = checked(capsys, FULL, "--gpus", "8x24G", *NEWEST)
    assert (full["verdict"], full["room"]) == ("oom", [])
    assert "deepspeed.offload_optimizer" in knobs([full["fix"]])
    assert "deepspeed.offload_param" in knobs(full["relief"])  # under ZeRO-3 alone


def test_a_launch_that_ends_at_once_is_told_of_no_room(capsys: Captured) -> None:
    document = checked(capsys, f"{SMALL} --num_generations 7", *A100)
    assert (document["verdict"], document["room"]) == ("invalid", [])
    assert document["memory"]["state"] == "fits"


@pytest.mark.parametrize(("model", "verdict"), [("7B", "fits"), ("32B", "invalid")])
def test_a_server_alone_has_no_trainer_to_change(
    capsys: Captured, model: str, verdict: str
) -> None:
    server = f"swift rollout --model Qwen/Qwen2.5-{model}-Instruct"
    document = checked(capsys, server, "--gpus", "1x3090", *NEWEST, "--solve", "vllm.max_num_seqs")
    assert document["verdict"] == verdict
    assert (document["fix"], document["relief"], document["room"]) == (None, [], [])
    assert document["solved"] == {"knob": "vllm.max_num_seqs", "value": None, "spelling": None}
    if verdict == "fits":
        assert "per GPU of the rollout server, in the rollout phase" in document["headline"]


@pytest.mark.parametrize(
    ("gpus", "spelling"),
    [("8xA100-80G", "--per_device_train_batch_size {}"), ("8x24G", None), (None, None)],
)
def test_a_largest_value_is_spelled_where_there_is_one(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, gpus: str | None, spelling: str | None
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: None)
    command = SMALL if gpus != "8x24G" else FULL
    options = [] if gpus is None else ["--gpus", gpus, *NEWEST]
    solved = checked(capsys, command, *options, "--solve", "per_device_train_batch_size")["solved"]
    assert solved["knob"] == "train.micro_batch" or gpus is None
    assert (solved["value"] is not None) is (spelling is not None)
    assert solved["spelling"] == (spelling and spelling.format(solved["value"]))


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("1x3090", "1x3090"),
        ("3090", "1x3090"),
        ("RTX3090", "1xRTX3090"),
        ("2 x A100-80G", "2xA100-80G"),
    ],
)
def test_gpus_are_a_number_and_a_name_or_one_of_that_name(
    capsys: Captured, text: str, gpus: str
) -> None:
    assert checked(capsys, SMALL, "--gpus", text, "--nodes", "1", *NEWEST)["gpus"] == gpus


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with little of everything; the places whose room was asked for."""
    paths: list[str] = []

    def disk_usage(path: object) -> SimpleNamespace:
        paths.append(str(path))
        return SimpleNamespace(total=2**26, used=0, free=2**26)

    monkeypatch.setattr("shutil.disk_usage", disk_usage)
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    monkeypatch.setattr("grpo_doctor.cli.check_memory._memory_here", lambda: 2**40)
    return paths


@pytest.mark.parametrize(
    ("present", "options", "measured"),
    [(True, (), True), (True, ("--gpus", "8xA100-80G"), False), (False, (), False)],
)
def test_this_machine_is_only_measured_where_the_job_would_run_on_it(
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    narrow: list[str],
    present: bool,
    options: tuple[str, ...],
    measured: bool,
) -> None:
    present_gpus = Gpus(8, "A100-80G", 80 * 10**9) if present else None
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: present_gpus)
    command = f"{FULL} --save_steps 10 --dataloader_num_workers 4"
    ids = {flaw["id"] for flaw in checked(capsys, command, *options, *NEWEST)["flaws"]}
    assert ids & {"GL054", "GL056"} == ({"GL054", "GL056"} if measured else set())
    assert bool(narrow) is measured


def test_the_disk_is_the_one_that_checkpoints_go_to(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, narrow: list[str], tmp_path: Path
) -> None:
    present_gpus = Gpus(8, "A100-80G", 80 * 10**9)
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: present_gpus)
    checked(capsys, f"{FULL} --output_dir {tmp_path}/not/yet", *NEWEST)
    assert str(tmp_path) in narrow
    (tmp_path / "not").mkdir()
    narrow.clear()
    checked(capsys, f"{FULL} --output_dir {tmp_path}/not/yet", *NEWEST)
    assert f"{tmp_path}/not" in narrow


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is installed here: what the test puts in."""
    packages = {"grpo-doctor": "0.1.0"}

    def version(name: str) -> str:
        if name not in packages:
            raise PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr("importlib.metadata.version", version)
    return packages


BOTH = {"ms-swift": "3.4.0", "vllm": "0.9.0"}


@pytest.mark.parametrize(
    ("added", "stated", "versions"),
    [
        ({}, {}, {}),
        (BOTH, {}, BOTH),
        # Beside another version of the framework what is installed here is not what it runs with.
        (BOTH, {"ms-swift": "4.6.0"}, {"ms-swift": "4.6.0"}),
        (BOTH, {**BOTH, "vllm": "0.8.0"}, {**BOTH, "vllm": "0.8.0"}),
        ({"vllm": "0.9.0"}, {}, {}),
        ({"vllm": "0.9.0"}, {"ms-swift": "4.6.0"}, {"ms-swift": "4.6.0"}),
    ],
)
def test_what_is_installed_counts_where_it_is_what_the_launch_would_use(
    monkeypatch: pytest.MonkeyPatch,
    installed: dict[str, str],
    added: dict[str, str],
    stated: dict[str, str],
    versions: dict[str, str],
) -> None:
    launches: list[Launch] = []
    usual = checking.check

    def judged(launch: Launch, request: Request) -> CheckDocument:
        launches.append(launch)
        return usual(launch, request)

    monkeypatch.setattr("grpo_doctor.cli.checking.check", judged)
    monkeypatch.setattr("grpo_doctor.cli.check._present", lambda: None)
    installed |= added
    words = [word for name, value in stated.items() for word in ("--version", f"{name}={value}")]
    check(SMALL, *words)
    (launch,) = launches
    assert dict(launch.versions) == versions
    assert launch.version == versions.get("ms-swift", launch.version)


@pytest.mark.parametrize("text", ["ms-swift=abc", "ms-swift", "ms-swift="])
def test_a_version_is_a_package_and_a_number(text: str, capsys: Captured) -> None:
    assert check(SMALL, "--version", text) == 2
    assert "give PACKAGE=VERSION" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "gpus"),
    [
        ({"0": "NVIDIA GeForce RTX 3090", "1": "NVIDIA GeForce RTX 3090"}, "2x"),
        ({"0": None}, None),
        ({}, None),
        ({"0": "A card that nobody knows"}, None),
    ],
)
def test_the_gpus_of_this_host_are_those_that_the_driver_names(
    models: dict[str, str | None],
    gpus: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    for name, model in models.items():
        (tmp_path / name).mkdir()
        lines_ = [f"Model: \t\t {model}"] if model else []
        (tmp_path / name / "information").write_text("\n".join([*lines_, "IRQ: 42", ""]))
    folders = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(folders))
    description = checked(capsys, SMALL, *NEWEST)["gpus"]
    assert description is None if gpus is None else description.startswith(gpus)
