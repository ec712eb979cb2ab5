from __future__ import annotations

import pytest

from grpo_doctor_probes.discover.commands import (
    Sizes,
    command_text,
    is_agent,
    kind_of,
    launcher_sizes,
    program,
)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("python -m torch.distributed.run --nproc_per_node 8 train.py", "launcher"),
        ("python /opt/venv/bin/accelerate launch train.py", "launcher"),
        ("python -u -m deepspeed.launcher.launch --world_info=x train.py", "launcher"),
        ("python /opt/venv/bin/trl grpo --config c.yaml", "launcher"),
        ("python /opt/venv/bin/trl vllm-serve --model m", "server"),
        ("python -X dev -m sglang.launch_server --model m", "server"),
        ("python -m grpo_doctor_trainer --model m", "unknown"),
        ("python /opt/venv/bin/grpo-doctor run -- torchrun train.py", "ourselves"),
        ("VLLM::EngineCore_DP0", "engine"),
        ("VLLM::Worker_TP0_PP1", "engine-worker"),
        ("sglang::scheduler_TP0", "engine"),
        ("ray::IDLE", "ray"),
        ("ray::WorkerDict.update", "unknown"),
        ("ray::RewardModelActor", "ray"),
        ("python -c from.multiprocessing.resource_tracker.import.main", "helper"),
        ("python train.py torchrun", "unknown"),
        ("srun -n 8 python train.py", "launcher"),
        ("python /v/ray/dashboard/dashboard.py --port 1", "ray"),
        ("python /v/bin/ray start --head", "ray"),
        ("python -m verl.trainer.main_ppo", "ray"),
        ("python -m openrlhf.cli.train_ppo_ray", "ray"),
        ("python /v/swift/cli/rollout.py --model m", "server"),
        ("/v/bin/swift rlhf --rlhf_type grpo", "launcher"),
        ("python -m swift rlhf", "unknown"),
        ("python -m torchrun t.py", "unknown"),  # a program of the user's
        ("", "unknown"),
    ],
)
def test_a_command_line_tells_the_role(command: str, kind: str) -> None:
    assert kind_of("python", tuple(command.split())) == kind


def test_thread_names_of_torch_count_more_than_the_command() -> None:
    command = ("python", "train.py")
    assert kind_of("pt_data_worker", command) == "dataloader"
    assert kind_of("pt_elastic", command) == "launcher"


def test_python_options_are_not_the_program() -> None:
    run = program(("python3", "-u", "-X", "importtime", "-W", "error", "run.py", "-m", "x"))
    assert (run.script, run.module, run.options) == ("run.py", "", ("-m", "x"))
    assert program(("python3", "-mtorch.distributed.run")).module == "torch.distributed.run"
    assert program(("python3", "-c")).code == ""


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        ("torchrun --nproc_per_node 8 t.py", Sizes(8, 8)),
        ("torchrun --nproc-per-node=4 --nnodes=2 t.py", Sizes(8, 4)),
        ("torchrun --nproc-per-node=4 --nnodes=1:4 t.py", Sizes(None, 4)),
        ("torchrun --nproc_per_node gpu t.py", Sizes()),
        ("torchrun --nproc_per_node 1000000 t.py", Sizes()),
        ("torchrun --nproc_per_node 0 t.py", Sizes()),
        ("accelerate launch --num_processes 8 --num_machines many t.py", Sizes(8, None)),
        ("srun --ntasks=6 python t.py", Sizes(6, None)),
        ("torchrun --nproc_per_node", Sizes()),
        ("accelerate launch --num_processes 8 --num_machines 2 t.py", Sizes(8, 4)),
        ("mpirun -np 6 python t.py", Sizes(6, None)),
    ],
)
def test_a_launcher_is_told_how_many_ranks_to_start(command: str, sizes: Sizes) -> None:
    assert launcher_sizes(tuple(command.split())) == sizes


def test_code_of_many_lines_is_shown_in_one() -> None:
    code = "import time\n\n    # \x1b[1m wait\r\ntime.sleep(3600)\n"
    words = command_text(("python", "-c", code, "--api-key", "hunter2"))
    assert words.startswith("python -c import time # ?[1m wait time.sleep(3600) --api-key ")
    assert "hunter2" not in words


@pytest.mark.parametrize(
    ("name", "command", "agent"),
    [
        ("pt_elastic", "python t.py", True),
        ("python", "/v/bin/torchrun t.py", True),
        ("python", "python -m torch.distributed.run t.py", True),
        ("python", "accelerate launch t.py", False),
        ("python", "python t.py", False),
    ],
)
def test_torchs_own_launcher(name: str, command: str, agent: bool) -> None:
    assert is_agent(name, tuple(command.split())) is agent
