"""Launches of every form: which framework's, which settings, how many processes, what is odd."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.errors import UsageError
from grpo_doctor.launches import Launch, read
from grpo_doctor.launches.judge import judge
from grpo_doctor.launches.view import View
from tests.unit.launches.pairs import EIGHT, QWEN_7B

SWIFT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B "


def problems(launch: Launch) -> dict[str, str]:
    return {problem.kind: problem.text for problem in launch.problems}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *((command, {"framework": framework, "role": role, "launcher": launcher})
          for command, framework, role, launcher in (
        ("NPROC_PER_NODE=2 swift rlhf --model m", "ms-swift", "train", "torchrun"),
        ("python -m swift.cli.main rlhf --model m", "ms-swift", "train", ""),
        ("megatron rlhf --model m", "ms-swift", "train", ""),
        ("trl grpo --model_name_or_path m", "trl", "train", "trl"),
        ("accelerate launch --num_processes 2 t.py --use_vllm", "unknown", "train", "accelerate"),
        ("torchrun --nproc_per_node 2 t.py", "unknown", "train", "torchrun"),
        ("deepspeed --num_gpus 2 t.py --deepspeed z.json", "unknown", "train", "deepspeed"),
        ("python3 -m torch.distributed.run --nproc-per-node=2 t.py", "unknown", "train",
         "torchrun"),
        ("nohup python -u -m verl.trainer.main_ppo a.b=1", "verl", "train", "ray"),
        ("python -m openrlhf.cli.train_ppo_ray --pretrain m", "openrlhf", "train", "ray"),
        ("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray", "openrlhf", "train", "ray"),
        ("swift rollout --model m", "ms-swift", "rollout server", ""),
        ("trl vllm-serve --model m", "trl", "rollout server", ""),
        ("vllm serve m -tp 2", "vllm", "rollout server", ""),
        ("python -m sglang.launch_server --model-path m --tp 2", "sglang", "rollout server", ""),
        ("srun -N 2 bash -c 'torchrun --nproc_per_node 8 t.py'", "unknown", "train", "torchrun"),
        ("--model m --max_steps 3", "bundled", "train", ""))),
        *((command, {"trainer": trainer}) for command, trainer in (
        ("swift rlhf --rlhf_type grpo", "grpo"),
        ("swift rlhf --model m", "dpo"),
        ("swift rlhf --rlhf_type $KIND", "unknown"),
        ("swift sft --model m", "sft"),
        ("swift rollout --model m", "none"),
        ("trl grpo --beta 1", "grpo"),
        ("trl reward --model m", "rm"),
        ("python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo", "grpo"),
        ("python -m verl.trainer.main_ppo a.b=1", "ppo"),
        ("python -m verl.trainer.main_ppo algorithm.adv_estimator=$ADV", "unknown"),
        ("python -m verl.trainer.main_generation a.b=1", "generation"),
        ("python -m verl.trainer.main_eval a.b=1", "unknown"),
        ("python -m verl.trainer.main_ppo trainer.val_only=True", "generation"),
        ("python3 examples/train_ppo_ray.py --actor_num_gpus_per_node 1", "ppo"),
        ("torchrun train_ppo.py --micro_rollout_batch_size 4", "ppo"),
        ("python -m own.train algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8", "grpo"),
        ("python own/main_grpo.py algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8",
         "grpo"),
        ("python -m openrlhf.cli.train_ppo_ray --advantage_estimator group_norm", "grpo"),
        ("python -m openrlhf.cli.train_ppo_ray --pretrain m", "ppo"),
        ("python -m openrlhf.cli.train_kto --pretrain m", "kto"),
        ("--model m", "grpo"))),
    ],
)  # fmt: skip
def test_each_form_is_recognized(command: str, expected: dict[str, str]) -> None:
    launch = read(command.split() if command.startswith("--") else [command])
    assert {name: getattr(launch, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("source", "framework", "trainer"),
    [
        ("from trl import GRPOConfig, GRPOTrainer\nGRPOTrainer(model='m')", "trl", "grpo"),
        ("import trl\ntrl.GRPOTrainer('m')", "trl", "grpo"),
        ("from trl.trainer import AsyncGRPOTrainer", "trl", "grpo"),
        ("from trl import SFTConfig, SFTTrainer\nSFTTrainer('m')", "trl", "sft"),
        ("from trl import DPOTrainer", "trl", "dpo"),
        ("from unsloth import FastModel\nfrom trl import GRPOTrainer", "unsloth", "grpo"),
        ("from slime.ray import placement", "slime", "unknown"),
        ("import miles.utils as m", "miles", "unknown"),
        ("from nemo_rl.algorithms.grpo import setup", "nemo-rl", "unknown"),
        ("from skyrl_train.entrypoints import main_base", "skyrl", "unknown"),
        ("from areal.api import GRPOConfig", "areal", "grpo"),
        ("import prime_rl", "prime-rl", "unknown"),
        ("import torch\nimport torch.distributed as dist", "unknown", "unknown"),
        ("from mine import GRPOTrainer\nGRPOTrainer()", "unknown", "unknown"),
        ("import hydra\nfrom verl.trainer.ppo import core_algos", "verl", "ppo"),
        ("def (:", "unknown", "unknown"),
    ],
)
@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 2 ", "accelerate launch "])
def test_a_script_is_of_the_framework_that_it_imports(
    tmp_path: Path, source: str, framework: str, trainer: str, start: str
) -> None:
    (tmp_path / "t.py").write_text(source)
    launch = read([f"{start}t.py"], cwd=tmp_path)
    assert (launch.framework, launch.trainer) == (framework, trainer)
    if framework not in ("trl", "unknown"):
        assert read(["uv run python t.py"], cwd=tmp_path).framework == framework
    supported = framework in ("trl", "verl")
    assert (launch.is_supported, launch.outside is None) == (supported, supported)
    assert supported or (dict(launch.settings), launch.problems) == ({}, ())


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("python3 train.py --actor-num-gpus-per-node 8 --rollout-num-gpus 8 --colocate", "slime"),
        ("uv run examples/run_grpo_math.py --config grpo.yaml", "nemo-rl"),
        ("uv run --isolated --extra vllm -m skyrl.train.entrypoints.main_base a=1", "skyrl"),
        ("python -m areal.launcher.local gsm8k.py --config c.yaml", "areal"),
        ("uv run rl @ configs/rl.toml", "prime-rl"),
        ("python3 -m verl.trainer.main config=examples/config.yaml", "easyr1"),
    ],
)
def test_a_framework_that_is_not_supported_is_named(command: str, framework: str) -> None:
    launch = read([command])
    assert launch.framework == framework
    assert "is not supported" in (launch.outside or "")
    assert read(["torchrun run_grpo_own.py"]).framework == "unknown"  # a name that many give


def test_words_that_a_shell_divided_and_one_text_mean_the_same() -> None:
    text = "NPROC_PER_NODE=4 MAX_PIXELS=602112 " + SWIFT + "--num_generations 4"
    undivided, divided = read([text]), read(text.split())
    assert dict(undivided.settings) == dict(divided.settings)
    assert undivided.settings["data.max_pixels"] == 602_112
    assert divided.processes == 4
    assert divided.sources["rollout.num_generations"].argument == 8


@pytest.mark.parametrize(
    ("more", "version", "kind", "said"),
    [
        ("--train_type lora", "3.4.0", "", ""),
        ("--train_type lora", "4.6.0", "renamed-flag",
         "--train_type is --tuner_type in ms-swift 4.6.0: --tuner_type lora"),
        ("--vllm_enable_lora true", "3.5.0", "newer-flag", "came with ms-swift 3.10.0"),
        ("--gc_collect_after_offload true", "4.6.0", "removed-flag", "gone since ms-swift 3.10.0"),
        ("--vllm_gpu_memory_utilisation 0.5", "4.6.0", "unknown-flag",
         "did you mean --vllm_gpu_memory_utilization?"),
    ],
)  # fmt: skip
def test_flags_of_other_versions_and_wrong_ones(
    more: str, version: str, kind: str, said: str
) -> None:
    launch = read([SWIFT + more], versions={"ms-swift": version})
    assert [problem.kind for problem in launch.problems] == ([kind] if kind else [])
    assert all(said in f"{each.text}: {each.fix}" and each.ends for each in launch.problems)
    assert "type" not in more or launch.settings["train.type"] == "lora"


def test_a_version_that_nobody_says_is_the_newest_that_takes_the_options() -> None:
    launch = read([SWIFT + "--train_type lora --gc_collect_after_offload true"])
    assert launch.version == "3.9.3"
    assert any("override with --version ms-swift=X" in text for text in launch.assumptions)
    assert any("has no --train_type, --gc_collect" in text for text in launch.assumptions)
    assert launch.problems == ()


def test_an_option_that_transformers_4_has_decides_no_version() -> None:
    launch = read([SWIFT + "--train_type lora --warmup_ratio 0.05"])
    assert launch.version == "4.0.3"
    assert launch.problems == ()


def test_hydra_adds_overrides_and_refuses() -> None:
    command = (
        "python -m verl.trainer.main_ppo trainer.n_gpu_per_node=4 +trainer.nnodes=2 "
        "++data.anything=1 ~trainer.logger +actor_rollout_ref.rollout.engine_kwargs.vllm.x=1"
    )
    launch = read([command], versions={"verl": "0.9.1"})
    texts = [problem.text for problem in launch.problems]
    assert (
        "verl 0.9.1 has no trainer.n_gpu_per_node; did you mean trainer.n_gpus_per_node?" in texts
    )
    assert any("has trainer.nnodes already" in text for text in texts)
    assert len(texts) == 2


def test_many_unknown_keys_are_a_fork_that_may_have_them() -> None:
    command = "python -m verl.trainer.main_ppo a.b=1 a.c=2 algorithm.votes=3"
    launch = read([command], versions={"verl": "0.9.1"})
    assert [problem.ends for problem in launch.problems] == [False] * 3
    assert all("fork of verl" in problem.text for problem in launch.problems)


def test_a_script_that_goes_to_another_folder_first(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "src" / "z.json").write_text('{"zero_optimization": {"stage": 1}}')
    script = tmp_path / "scripts" / "run.sh"
    top = '$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)'
    script.write_text(f'cd "{top}/src"\n{SWIFT} --deepspeed z.json\n')
    assert read([str(script)]).settings["deepspeed.stage"] == 1


def test_what_is_missing_contradictory_or_of_the_wrong_kind_is_said() -> None:
    launch = read([SWIFT + "--num_generations four --max_length --beta 0.1 --beta 0.2 --lr $LR"])
    texts = problems(launch)
    assert "takes a whole number" in texts["bad-value"]
    assert "has no value" in texts["missing-value"]
    assert "the last one counts" in texts["contradiction"]
    assert "$LR is not set" in texts["unset-variable"]
    assert launch.settings["train.beta"] == 0.2


@pytest.mark.parametrize(
    ("command", "words", "beta"),
    [
        ("trl grpo --config c.yaml --beta 0.2", "--beta 0.2, but beta: 0.1 in c.yaml:1", 0.2),
        ("trl grpo --config c.yaml --beta 0.1", None, 0.1),
        ("swift rlhf c.yaml --beta 0.2", "in ms-swift the command line counts", 0.2),
        ("swift rlhf c.yaml --beta $B", None, None),
        ("cat > d.yaml <<E\nbeta: 0.3\nE\ntrl grpo --config d.yaml", None, 0.3),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --gpu_ids 2,3 t.py", "has 2,3", 0.5),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --gpu_ids 0,1 t.py", None, 0.5),
        ("CUDA_VISIBLE_DEVICES=0 deepspeed --include localhost:1 t.py", "which counts", 0.5),
        ("NPROC_PER_NODE=2 torchrun --nproc_per_node 4 t.py", "NPROC_PER_NODE=2, but", 0.5),
    ],
)
def test_which_of_two_contradicting_settings_wins_is_said(
    tmp_path: Path, command: str, words: str | None, beta: float | None
) -> None:
    (tmp_path / "c.yaml").write_text("beta: 0.1\n")
    (tmp_path / "t.py").write_text("from trl import GRPOConfig, GRPOTrainer\nGRPOConfig(beta=0.5)")
    launch = read([command], cwd=tmp_path)
    said = [problem.text for problem in launch.problems if problem.kind == "contradiction"]
    assert (len(said), all(words in text for text in said if words)) == (
        int(words is not None),
        True,
    )
    assert launch.settings.get("train.beta") == beta


@pytest.mark.parametrize(("program", "model"), [("swift rlhf --rlhf_type", "a/b"), ("trl", None)])
def test_a_checkpoint_folder_is_the_model_of_ms_swift_alone(
    program: str, model: str | None
) -> None:
    assert read([f"{program} grpo --ckpt_dir a/b"]).model == model


def test_a_script_with_a_server_and_a_line_that_is_cut_off(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "CUDA_VISIBLE_DEVICES=4,5 swift rollout --model m &\n"
        f"CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 {SWIFT}--vllm_mode server\n"
        "    --beta 0.1\n"
    )
    launch = read([str(script)])
    assert launch.server is not None
    assert launch.server.gpu_ids == ("4", "5")
    assert launch.sources["vllm.mode"].line == 2
    assert "run.sh:3 begins a command with --beta" in problems(launch)["broken-line"]


@pytest.mark.parametrize("end", [" \\ ", " \\\t# GRPO", ""])
def test_a_line_that_does_not_go_on_ends_overrides_too(tmp_path: Path, end: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo{end}\n"
        "  +actor_rollout_ref.rollout.n=8 \\\n  data.train_files=x\n"
    )
    launch = read([str(script)])
    assert launch.problems[0].ends
    assert "run.sh:2 begins a command with +actor" in problems(launch)["broken-line"]


def test_a_module_that_is_not_here_has_no_framework() -> None:
    launch = read(["accelerate launch --num_processes 8 -m open_r1.grpo --config c.yaml"])
    assert launch.framework == "unknown"
    assert "open_r1/grpo.py is not on this machine" in problems(launch)["unreadable"]
    with pytest.raises(UsageError):
        read(["python -m http.server"])


def test_files_that_a_launch_names(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})
    )
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 1\nmixed_precision: bf16\n"
        "deepspeed_config:\n  zero_stage: 2\n  offload_optimizer_device: none\n"
    )
    (tmp_path / "grpo.yaml").write_text("model_name_or_path: m\nnum_generations: 4\nenv:\n  A: 1\n")
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer\nN = 8\n"
        "args = GRPOConfig(output_dir='x', num_generations=N, use_vllm=True)\n"
        "t = GRPOTrainer(model='Qwen/Qwen2.5-3B', args=args)\nraise SystemExit('never run')\n"
    )
    swift = read([SWIFT + "--deepspeed ds.json"], cwd=tmp_path)
    assert swift.settings["deepspeed.stage"] == 3
    assert swift.settings["deepspeed.offload_optimizer"] is True
    assert swift.sources["deepspeed.stage"].file == "ds.json"
    command = "accelerate launch --config_file acc.yaml train.py --num_generations 16"
    trl = read([command], cwd=tmp_path)
    assert (trl.processes, trl.model) == (8, "Qwen/Qwen2.5-3B")
    assert trl.settings["deepspeed.stage"] == 2
    assert trl.settings["rollout.num_generations"] == 16
    assert trl.settings["vllm.use"] is True
    assert trl.sources["deepspeed.stage"].line == 6
    assert trl.sources["vllm.use"].line == 3
    config = read(["trl grpo --config grpo.yaml --num_generations 2"], cwd=tmp_path)
    assert (config.model, config.settings["rollout.num_generations"]) == ("m", 2)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "a: [", "\x00", "- x"])
def test_a_damaged_file_is_a_problem_and_no_end(tmp_path: Path, text: str) -> None:
    for name in ("c.yaml", "c.json"):
        (tmp_path / name).write_text(text)
        launch = read([f"{SWIFT}--deepspeed {name}"], cwd=tmp_path)
        assert "unreadable" in problems(launch)


@pytest.mark.parametrize("command", [
    "ls", "nothere.sh", "swit rlhf", "python", " ", "accelerate", "accelerate config", "ray job",
    "torchrun",
])  # fmt: skip
def test_no_launch_is_a_message(command: str) -> None:
    with pytest.raises(UsageError):
        read([command])


WORDS = st.sampled_from(
    [
        *("swift", "rlhf", "trl", "grpo", "accelerate", "launch", "torchrun", "python", "-m", "-"),
        *("verl.trainer.main_ppo", "openrlhf.cli.train_ppo_ray", "vllm", "serve", "ray", "job"),
        *("submit", "--", "--model", "m", "--num_generations", "8", "x.py", "a.b=1", "+a=", "~x"),
        *("--deepspeed", "{}", "{", "zero3", "--config", "--use_vllm", "true", "NPROC_PER_NODE=x"),
        *("--x=1", "--=", "=", "", " ", "$X", "nan", "-1", "1e400", "--config-name", "[1]", "'"),
    ]
)


UNKNOWN = ("$N", "${N}", "$(nproc)", "$((N * 2))", "${A[0]}", "$(nvidia-smi -L | wc -l)")
LAUNCHES = {
    "swift rlhf --rlhf_type grpo --dataset d --reward_funcs accuracy --model Qwen/Qwen2.5-7B": (
        "--num_generations", "--per_device_train_batch_size", "--gradient_accumulation_steps",
        "--vllm_tensor_parallel_size", "--max_completion_length", "--vllm_gpu_memory_utilization",
        "--deepspeed", "--tuner_type", "--use_vllm", "--rlhf_type", "--vllm_mode",
    ),
    "trl grpo --dataset_name d --reward_funcs accuracy_reward --model_name_or_path Qwen/Qwen3-4B": (
        "--num_generations", "--generation_batch_size", "--num_processes", "--use_vllm",
    ),
    "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=8 "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.actor.use_dynamic_bsz=True": (
        "actor_rollout_ref.rollout.n=", "data.train_batch_size=", "trainer.nnodes=",
        "trainer.n_gpus_per_node=", "actor_rollout_ref.actor.ppo_mini_batch_size=",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=", "algorithm.adv_estimator=",
        "actor_rollout_ref.model.path=", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=",
    ),
    "python -m openrlhf.cli.train_ppo_ray --pretrain m --prompt_data d --reward_pretrain r": (
        "--rollout_batch_size", "--train_batch_size", "--vllm_num_engines", "--actor_num_nodes",
        "--actor_num_gpus_per_node", "--vllm_tensor_parallel_size", "--advantage_estimator",
    ),
}  # fmt: skip


@pytest.mark.parametrize("value", UNKNOWN)
@pytest.mark.parametrize("command", LAUNCHES)
def test_a_value_that_is_unknown_brings_no_refusal(command: str, value: str) -> None:
    """Of a launch that is not refused as it stands, none is once a value is in a variable."""

    def refused(text: str) -> list[str]:
        view = View(read([text]), EIGHT, QWEN_7B)
        return [each.flaw.headline for each in judge(view) if each.flaw.ends or each.flaw.first]

    known = refused(command)
    for option in LAUNCHES[command]:
        text = f"{command} {option}{'' if option.endswith('=') else ' '}{value}"
        assert set(refused(text)) <= set(known), text
    everything = " ".join(
        f"{option}{'' if option.endswith('=') else ' '}{value}" for option in LAUNCHES[command]
    )
    assert set(refused(f"{command} {everything}")) <= set(known)


@given(st.lists(WORDS, max_size=12))
def test_any_words_are_a_launch_or_a_usage_error(arguments: list[str]) -> None:
    try:
        launch = read(arguments)
    except UsageError:
        return
    for knob in launch.settings:
        launch.value(knob)


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_of_more_than_four_mebibytes_is_no_configuration(tmp_path: Path, more: int) -> None:
    (tmp_path / "z.json").write_text("{}" + " " * ((4 << 20) - 2 + more))
    launch = read([f"{SWIFT}--deepspeed z.json"], cwd=tmp_path)
    assert ("unreadable" in problems(launch)) is bool(more)


def test_a_servers_settings_are_spelled_as_its_own_command_takes_them() -> None:
    commands = ("swift rollout --model m", "trl vllm-serve --model m", "vllm serve m")
    tables = [read([command]).table for command in commands]
    assert tables == ["ms-swift server", "trl server", "vllm"]


@pytest.mark.timeout(10)
def test_what_is_in_a_pipe_is_left_to_the_job(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    launch = read(["trl", "grpo", "--config", "config.yaml"], cwd=tmp_path)
    assert "not a regular file" in problems(launch)["unreadable"]


@pytest.mark.parametrize(
    "line", ["from mine import Qwen2VLGRPOTrainer", "from .t import GRPOTrainer"]
)
def test_a_trainer_of_the_scripts_own_is_not_that_of_trl(tmp_path: Path, line: str) -> None:
    (tmp_path / "grpo.py").write_text(f"from trl import GRPOConfig\n{line}\n")
    options = "--num_generations 8 --per_device_train_batch_size 1"
    launch = read([f"torchrun --nproc_per_node 4 grpo.py {options}"], cwd=tmp_path)
    assert launch.trainer == "own"
    assert {judged.id for judged in judge(View(launch, EIGHT, QWEN_7B))} == {"unreadable"}


def test_an_option_whose_value_is_not_known_does_not_eat_the_next(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("")
    script = tmp_path / "run.sh"
    script.write_text(
        'LAUNCH="accelerate launch --main_process_ip $HEAD --main_process_port 6000"\n'
        'srun bash -c "$LAUNCH t.py"\n'
    )
    assert read([str(script)], cwd=tmp_path).subcommand == "t.py"


@pytest.mark.parametrize(
    "source",
    [
        "from .config import PPOConfig\nPPOConfig()",
        "class CustomRewardTrainer: ...\nCustomRewardTrainer()",
        "from mine import Lab\nLab().RayPPOTrainer()",
    ],
)
def test_trainers_of_others_do_not_make_a_module_one_of_trl(tmp_path: Path, source: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/main.py").write_text(source)
    assert read(["torchrun -m work.main"], cwd=tmp_path).framework == "unknown"


def test_what_looks_broken_before_the_launch_ends_nothing(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"vf-install wordle (-p PATH | --from-repo)\n{SWIFT}--use_vllm true\n")
    assert "broken-line" not in problems(read([str(script)]))


def test_a_configuration_that_is_not_known_is_not_the_usual_one(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        'python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo --config-name "$1"\n'
    )
    launch = read([str(script)])
    assert not launch.complete
    assert not any(judged.flaw.ends for judged in judge(View(launch, EIGHT, QWEN_7B)))


def test_a_comment_between_options_adds_none() -> None:
    assert read([f"{SWIFT}`# memory` --beta 0.5"]).settings["train.beta"] == 0.5


def test_a_word_that_is_no_truth_value_is_true_to_hydra() -> None:
    key = "actor_rollout_ref.model.enable_gradient_checkpointing"
    launch = read([f"python3 -m verl.trainer.main_ppo {key}=Flase"], versions={"verl": "0.9.1"})
    assert "this text counts as true" in problems(launch)["bad-value"]
    assert not any(problem.ends for problem in launch.problems)
