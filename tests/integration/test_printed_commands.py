"""Every command in a block of README and the quickstarts runs as printed.

Frameworks and launchers that need GPUs or a cluster are stood in for by a program that writes down
its arguments; `grpo-doctor` runs for real, and each training launch is also put to `check`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_doctor.trace.write import write_trace
from tests.unit.findings.example_runs import offloaded

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/quickstart").glob("*.md"))]
STAND_INS = ("accelerate", "python", "ray", "swift", "torchrun", "trl")
FILES = ("data.jsonl", "train.parquet", "test.parquet")
SCRIPT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B-Instruct --reward_funcs format \\\n"
_BEGIN = re.compile(r"([A-Z_]+=\S+ )?(grpo-doctor|make|pip|ray|torchrun) ")
NEWEST = "grpo-doctor-out/20261121-100000"

NOT_RUN_HERE = {
    "pip install .": "needs a package index",
    "pip install '.[trainer]'": "needs a package index",
    "pip install '.[trainer,vllm]'": "needs a package index",
    "make demo": "half a minute: test_run_trainer.py runs its flags",
    "make demo-fixed": "half a minute: test_run_trainer.py runs its flags",
    "make test": "it would run itself",
    "grpo-doctor run": "the demo: test_run_trainer.py",
    "grpo-doctor attach": "inspects any job of this machine: test_attach.py has jobs of its own",
    "grpo-doctor treat -- bash train.sh": "trains for minutes: tests/treat has jobs of its own",
    "grpo-doctor attach --slurm 4711": "needs Slurm: `make cluster` has a real one",
    "torchrun --nproc_per_node 2 docs/examples/trl_job.py --fault stuck &": "never ends",
    "grpo-doctor run --nproc 8 -- --model Qwen/Qwen2.5-7B-Instruct --dataset data.jsonl "
    "--deepspeed zero2 --use_vllm true --vllm_gpu_memory_utilization 0.5": "8 GPUs: check below",
}


def _commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page, and the line that is printed below it as its answer."""
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        lines = [re.split(r"\s+#\s", line)[0] for line in block.splitlines() if line]
        if lines[0].startswith("$ "):
            yield lines[0][2:], lines[1]
        elif not language and _BEGIN.match(block):
            yield from ((line, "") for line in lines)


COMMANDS = dict(command for page in PAGES for command in _commands(page))
HERE = [command for command in COMMANDS if command not in NOT_RUN_HERE]
REAL = {"grpo-doctor selftest": "10 of 10"} | {
    command: "rank 1 is slow in reward" for command in HERE if "docs/examples" in command
}
LAUNCHES = [
    launch
    for command in COMMANDS
    for launch in [command.partition(" -- ")[2]]
    if " run " in command and re.match(r"(swift rlhf|trl grpo|python -m|--model) ", launch)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, and the stand-ins."""
    folder = tmp_path_factory.mktemp("printed")
    for name in FILES:
        (folder / name).touch()
    (folder / "reward.py").write_text("def reward_func(*_): ...\n")
    (folder / "train.sh").write_text(f"{SCRIPT}  --dataset data.jsonl\n")
    for name in ("trace.json", "trace.json.gz", f"{NEWEST}/trace.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_trace(offloaded().build(), folder / name)
    (folder / NEWEST / "run.json").write_text("{}")
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "bin").mkdir()
    for name in STAND_INS:
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/called\n')
        program.chmod(0o755)
    return folder


def _run(command: str, place: Path, *, stand_ins: bool = True) -> subprocess.CompletedProcess[str]:
    folders = [str(place / "bin")] * stand_ins + [str(Path(sys.executable).parent)]
    environment = os.environ | {"PATH": ":".join([*folders, os.environ["PATH"]])}
    (place / "called").write_text("")
    shutil.rmtree(place / "runs", ignore_errors=True)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=place, env=environment, text=True,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in HERE if command not in REAL])
def test_a_command_runs_as_printed(command: str, place: Path) -> None:
    if "| jq" in command and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    ran = _run(command, place)
    answer = COMMANDS[command].partition(" ...")[0]
    assert ran.returncode == (9 if answer.startswith("No") else 0), ran.stderr
    assert ran.stdout.startswith(answer)
    launch = shlex.split(command.rpartition(" -- ")[2])
    if launch[0] in STAND_INS and " check " not in command:
        assert (place / "called").read_text().split() == launch
    elif launch[0] == "bash" and not command.startswith("ray"):
        assert (place / "called").read_text().startswith("swift rlhf")


@pytest.mark.parametrize("launch", LAUNCHES)
def test_check_finds_nothing_wrong_with_a_printed_launch(launch: str, place: Path) -> None:
    ran = _run(f"grpo-doctor check --gpus 8xA100-80G -- {launch}", place)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.startswith(("It probably fits", "It may fit"))


@pytest.mark.heavy
@pytest.mark.parametrize("command", REAL)
def test_a_job_with_a_known_fault_runs_as_printed_and_is_diagnosed(
    command: str, place: Path
) -> None:
    ran = _run(command, place, stand_ins=False)
    assert ran.returncode == 0, ran.stderr
    assert REAL[command] in ran.stderr + ran.stdout


def test_what_is_not_run_here_is_still_printed() -> None:
    assert set(NOT_RUN_HERE) <= set(COMMANDS)
    assert len(HERE) > 15
