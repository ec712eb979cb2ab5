"""Every example in a `--help` starts as it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from grpo_doctor import cli
from grpo_doctor.cli import parser
from grpo_doctor.trace.write import write_trace
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import offloaded

# They start a job, inspect or follow one, need a cluster, or take a minute; their arguments are
# parsed anyway.
_NOT_STARTED = ("run", "attach", "watch", "diagnose", "mcp", "selftest")
_RECORDINGS = (
    "trace.json", "before.json", "after.json", "main.json", "branch.json", "before/trace.json",
    "after/trace.json", "runs/before/trace.json", "runs/after/trace.json",
    "grpo-doctor-out/20261121-100000/trace.json",
)  # fmt: skip
_LAUNCH = """\
NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B-Instruct \\
    --dataset data.jsonl --reward_funcs format
"""
_SERVER = "swift rollout --model Qwen/Qwen2.5-0.5B-Instruct"
_SCRIPT = """\
from trl import GRPOConfig, GRPOTrainer
GRPOTrainer("Qwen/Qwen2.5-0.5B", reward_funcs=len, args=GRPOConfig("out"), train_dataset=[]).train()
"""
_CONSOLE = "{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}\n" * 4


def _examples(text: str) -> list[str]:
    """The commands, without what is said of them and without what their output goes into."""
    lines = re.sub(r"\\\n\s*", "", text).partition("examples:")[2].splitlines()
    commands = [line.strip() for line in lines if line.startswith("  grpo-doctor ")]
    return [command.split("   ")[0].split(" | ")[0].split(" > ")[0] for command in commands]


EXAMPLES = [
    example for text in (parser._EPILOG, *(command.EPILOG for command in parser.COMMANDS))
    for example in _examples(text)
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples name."""
    tmp_path = tmp_path_factory.mktemp("examples")
    for name in _RECORDINGS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_trace(offloaded().build(), tmp_path / name)
    (tmp_path / "grpo-doctor-out/20261121-100000/run.json").write_text("{}")
    (tmp_path / "train.log").write_text(_CONSOLE)
    (tmp_path / "data.jsonl").write_text('{"prompt": "1+1", "solution": "2"}\n')
    (tmp_path / "scripts").mkdir()
    for script in ("train.sh", "scripts/grpo.sh"):
        (tmp_path / script).write_text(_LAUNCH)
    (tmp_path / "rollout.sh").write_text(_SERVER)
    (tmp_path / "train.py").write_text(_SCRIPT)
    return tmp_path


@pytest.mark.parametrize("example", sorted(set(EXAMPLES)))
def test_an_example_starts_as_written(
    example: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(place)
    assert "..." not in example
    arguments = shlex.split(example)[1:]
    if cli._parsed(arguments).name not in _NOT_STARTED and "--ray" not in arguments:
        assert cli.main(arguments) in (0, 6, 7, 8), capfd.readouterr()


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "run" in example.split()])
def test_the_bundled_trainer_takes_the_flags_of_an_example_on_any_number_of_gpus(
    example: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(place)
    options = cli._parsed(shlex.split(example)[1:])
    launch = options.job_arguments or ["--help"]
    for gpus in [options.nproc] if options.nproc else [1, 2, 8]:
        if launch[0].startswith("--") and launch != ["--help"]:
            asked = ["check", "--gpus", f"{gpus}xA100-80G", "--", *launch]
            assert cli.main(asked) == 0, capfd.readouterr()
