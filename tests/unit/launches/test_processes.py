"""How many processes a launcher starts, and on which GPUs and hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.launches import read
from grpo_doctor.launches.judge import judge
from grpo_doctor.launches.view import View
from tests.unit.launches.pairs import APART, EIGHT, QWEN_7B
from tests.unit.launches.test_reading import SWIFT


def test_processes_of_each_launcher() -> None:
    def processes(command: str) -> tuple[int, int]:
        launch = read([command])
        return launch.processes_per_node, launch.nodes

    assert processes("NPROC_PER_NODE=8 NNODES=2 " + SWIFT) == (8, 2)
    assert processes(SWIFT) == (0, 1)  # what is pasted has seldom its variables in front
    assert processes("torchrun --nproc_per_node=4 --nnodes=1:2 t.py") == (4, 2)
    assert processes("torchrun --nproc_per_node gpu t.py") == (0, 1)
    assert processes("accelerate launch --num_processes 16 --num_machines 2 t.py") == (8, 2)
    assert processes("trl grpo --num_processes 6") == (6, 1)
    assert processes("deepspeed --include localhost:1,2 t.py") == (2, 1)
    assert processes("python -m verl.trainer.main_ppo trainer.nnodes=2") == (8, 2)


@pytest.mark.parametrize("start", ["torchrun", "accelerate launch"])
def test_launchers_options_in_a_variable_that_is_not_set_here(start: str) -> None:
    launch = read([f"{start} ${{LAUNCHER_OPTIONS}} -m swift.cli.rlhf --rlhf_type grpo --beta 0.1"])
    assert (launch.framework, launch.settings["train.beta"]) == ("ms-swift", 0.1)
    assert launch.processes_per_node == 0
    assumption = "one process for each visible GPU; $LAUNCHER_OPTIONS is not set here"
    assert (assumption in launch.assumptions) == (start == "torchrun")
    assert launch.processes_known == (start != "torchrun")


def test_gpus_that_are_shown() -> None:
    launch = read(["CUDA_VISIBLE_DEVICES=2,3 " + SWIFT])
    assert (launch.visible_gpus, launch.gpu_ids) == (2, ("2", "3"))
    assert read([SWIFT], environment={"CUDA_VISIBLE_DEVICES": "5"}).visible_gpus == 1


def test_srun_may_give_a_server_a_host_of_its_own(tmp_path: Path) -> None:
    train = f"{SWIFT}--use_vllm true --vllm_mode server"
    for begin, same in (("", True), ("srun --nodes=1 ", False)):
        script = tmp_path / "run.sh"
        script.write_text(f"{begin}swift rollout --model m &\n{train}\n")
        found = {judged.id for judged in judge(View(read([str(script)]), EIGHT, QWEN_7B))}
        assert ("GL025" in found) == same


@pytest.mark.parametrize(("hosts", "found"), [(4, set()), (1, {"GL064"})])
def test_openrlhfs_groups_are_on_any_host(hosts: int, found: set[str]) -> None:
    actor = APART.replace("num_gpus_per_node 8", "num_gpus_per_node 16")
    view = View(read([actor]), replace(EIGHT, nodes=hosts), QWEN_7B)
    assert {judged.id for judged in judge(view)} & {"GL002", "GL064"} == found


def test_variables_before_what_ray_submits() -> None:
    launch = read(["ray job submit -- A=1 python3 -m verl.trainer.main_ppo trainer.nnodes=2"])
    assert (launch.framework, launch.nodes) == ("verl", 2)


def test_deepspeed_starts_a_process_for_each_gpu_that_it_includes() -> None:
    launch = read(["deepspeed --include localhost:0,1,4,5 --module openrlhf.cli.train_ppo --a 1"])
    assert (launch.processes_per_node, launch.gpu_ids) == (4, ("0", "1", "4", "5"))
