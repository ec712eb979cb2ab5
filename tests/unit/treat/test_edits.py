"""Options in a command or in a copy of its script: what is changed, and nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from grpo_doctor.launches import Launch, read
from grpo_doctor.treat.edits import CannotEditError, Command, with_options

TRL = "trl grpo --model_name_or_path m --dataset_name d"
SWIFT = "swift rlhf --rlhf_type grpo --model m --dataset d"
VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
VERSIONS = {"trl": "1.16.0", "ms-swift": "4.6.0", "verl": "0.9.0"}


def reader(words: Sequence[str]) -> Launch:
    return read(words, environment={}, cwd=Path.cwd(), versions=VERSIONS)


def edited(command: Command, text: str, folder: Path) -> Command:
    return with_options(command, text, reader, folder / "scratch")


@pytest.mark.parametrize(
    ("words", "text", "after"),
    [
        (TRL, "--beta 0", f"{TRL} --beta 0"),
        (f"{TRL} --beta 0.1", "--beta 0", f"{TRL} --beta 0"),
        (f"{TRL} --beta=0.1 --top_p 1", "--beta 0", f"{TRL} --beta 0 --top_p 1"),
        (f"{TRL} --save-steps 2", "--save_steps 9", f"{TRL} --save_steps 9"),
        (f"{TRL} --learning_rate -1", "--learning_rate 2", f"{TRL} --learning_rate 2"),
        (
            f"{SWIFT} --reward_funcs a b --beta 1",
            "--reward_funcs c --beta 0",
            f"{SWIFT} --reward_funcs c --beta 0",
        ),
        (VERL, "trainer.save_freq=20", f"{VERL} trainer.save_freq=20"),
        (
            f"{VERL} trainer.save_freq=2 trainer.nnodes=1",
            "trainer.save_freq=20",
            f"{VERL} trainer.save_freq=20 trainer.nnodes=1",
        ),
        (
            f"{VERL} +ray_kwargs.x=1",
            "++ray_kwargs.x=2",
            f"{VERL} ++ray_kwargs.x=2",
        ),
        (f"{TRL} --bf16 --beta 1", "(remove --bf16)", f"{TRL} --beta 1"),
        ("--max_steps 3", "--beta 0", "--max_steps 3 --beta 0"),
    ],
)
def test_options_of_a_command(words: str, text: str, after: str, tmp_path: Path) -> None:
    assert edited(Command.of(words.split()), text, tmp_path).words == tuple(after.split())


def script(folder: Path, text: str, name: str = "train.sh") -> Command:
    path = folder / name
    path.write_text(text)
    return Command.of(["bash", str(path), "more"])


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (
            f"set -e\n{TRL} \\\n    --save_steps 2 \\\n    --beta 0 > log.txt\n",
            "--save_steps 200",
            f"set -e\n{TRL} \\\n    --save_steps 200 \\\n    --beta 0 > log.txt\n",
        ),
        (
            f"N=2\n{TRL} --save_steps $N \\\n    --beta=0.5 | tee log\n",
            "--save_steps 9 --top_p 0.5",
            f"N=2\n{TRL} --save_steps 9 \\\n    --top_p 0.5 --beta=0.5 | tee log\n",
        ),
        (
            f"{VERL} \\\n  trainer.save_freq=2 \\\n  trainer.nnodes=1\n",
            "trainer.save_freq=20",
            f"{VERL} \\\n  trainer.save_freq=20 \\\n  trainer.nnodes=1\n",
        ),
    ],
)
def test_options_of_a_script(before: str, text: str, after: str, tmp_path: Path) -> None:
    command = script(tmp_path, before)
    changed = edited(command, text, tmp_path)
    started = changed.started(tmp_path / "copies")
    assert Path(started[1]).read_text() == after
    assert started[2] == "more"
    assert (tmp_path / "train.sh").read_text() == before, "the user's file was written"
    applied = subprocess.run(
        ["patch", "-p1", "-d", "/"],
        input=changed.patch,
        text=True,
        check=False,
        capture_output=True,
    )
    assert applied.returncode == 0, applied.stdout
    assert (tmp_path / "train.sh").read_text() == after


def test_a_script_that_passes_its_arguments_on_stays_as_it_is(tmp_path: Path) -> None:
    command = script(tmp_path, f'{TRL} --beta 0.5 "$@"\n')
    changed = edited(command, "--save_steps 9", tmp_path)
    assert not changed.text
    assert changed.words[-2:] == ("--save_steps", "9")


def test_a_script_that_asks_for_its_own_place_is_not_copied(tmp_path: Path) -> None:
    command = script(tmp_path, f'cd "$(dirname "$0")"\n{TRL} --beta 0.5\n')
    with pytest.raises(CannotEditError, match="reads its own place"):
        edited(command, "--save_steps 9", tmp_path)


def test_an_option_that_another_script_has_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(f"{TRL} --beta 0.5\n")
    command = script(tmp_path, f"bash {tmp_path}/inner.sh\n")
    with pytest.raises(CannotEditError, match="no place was found"):
        edited(command, "--beta 0", tmp_path)
    assert (tmp_path / "inner.sh").read_text() == f"{TRL} --beta 0.5\n"


def test_an_option_of_a_configuration_is_said_on_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("model_name_or_path: m\ndataset_name: d\n" + "top_p: 1\n" + "beta: 0.5\n")
    command = script(tmp_path, f"trl grpo --config {config} --save_steps 2\n")
    changed = edited(command, "--beta 0", tmp_path)
    assert changed.text == f"trl grpo --beta 0 --config {config} --save_steps 2\n"
    assert "beta: 0.5" in config.read_text()


def test_several_edits_add_up(tmp_path: Path) -> None:
    command = script(tmp_path, f"{TRL} \\\n  --beta 0.5\n")
    for text in ("--beta 0", "--save_steps 9", "--beta 0.1"):
        command = edited(command, text, tmp_path)
    launch = reader(command.started(tmp_path / "copies"))
    assert launch.value("train.beta") == 0.1
    assert launch.value("checkpoint.save_steps") == 9
