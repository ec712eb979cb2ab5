"""What pickle refuses, read out of a file that is never run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor.launches import Launch, read

HEAD = """
import functools
from functools import partial
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

def plain(completions, **kwargs): return [0.0]
def with_weight(completions, weight=1.0, **kwargs): return [weight]
def maker(weight):
    def inner(completions, **kwargs): return [weight]
    return inner
def named(function):
    @functools.wraps(function)
    def call(*args, **kwargs): return function(*args, **kwargs)
    return call
def nameless(function):
    def call(*args, **kwargs): return function(*args, **kwargs)
    return call
@named
def decorated(completions, **kwargs): return [0.0]
@nameless
def hidden(completions, **kwargs): return [0.0]
class Judge:
    def __call__(self, completions, **kwargs): return [0.0]
short = lambda completions, **kwargs: [0.0]
around = 0
there, back = 1, 2
there = back
back = there
around = there
"""
TRAINED = "AsyncGRPOTrainer(model='Qwen/Qwen3-4B', reward_funcs={value}, args=AsyncGRPOConfig())"


def launched(folder: Path, code: str) -> Launch:
    (folder / "train.py").write_text(code)
    return read(["accelerate launch train.py"], cwd=folder)


def is_sent(value: str, folder: Path) -> bool:
    """What pickle itself says of a value in a module."""
    code = "\n".join(line for line in HEAD.splitlines() if "trl" not in line)
    (folder / "users_rewards.py").write_text(f"{code}\nsent = {value}\n")
    script = "import pickle, users_rewards; pickle.dumps(users_rewards.sent)"
    command = [sys.executable, "-c", script]
    child = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return child.returncode == 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("plain", None),
        ("[plain, Judge()]", None),
        ("partial(with_weight, weight=0.5)", None),
        ("decorated", None),
        ("some_library.reward", None),
        ("around", None),
        ("[plain, lambda completions, **kwargs: [0.0]]", "lambda has no name"),
        ("short", "lambda has no name"),
        ("maker(0.5)", "maker() returns inner"),
        ("partial(maker(0.5))", "maker() returns inner"),
        ("hidden", "@nameless puts call in its place"),
    ],
)
def test_what_is_sent_to_a_spawned_trainer(value: str, reason: str | None, tmp_path: Path) -> None:
    launch = launched(tmp_path, f"{HEAD}\n{TRAINED.format(value=value)}\n")
    assert [reason in each.reason for each in launch.unsendable if reason] == [True] * bool(reason)
    assert bool(launch.unsendable) == bool(reason)
    if "library" not in value:
        assert is_sent(value, tmp_path) == (reason is None)


def test_names_of_a_function_and_of_the_main_guard_are_not_found_by_a_child(tmp_path: Path) -> None:
    inside = (
        "def main():\n    def reward(completions, **kwargs): return [0.0]\n"
        "    class Own: pass\n    " + TRAINED.format(value="[reward, Own()]")
    )
    reasons = [each.reason for each in launched(tmp_path, HEAD + inside).unsendable]
    assert reasons == [
        "reward is defined inside a function",
        "the class Own is defined inside a function",
    ]
    guarded = (
        "if __name__ == '__main__':\n    def reward(completions, **kwargs): return [0.0]\n    "
    )
    (sent,) = launched(tmp_path, HEAD + guarded + TRAINED.format(value="reward")).unsendable
    assert "which a child skips" in sent.reason
    assert sent.source.file == "train.py"
    assert sent.source.line is not None


def test_an_asynchronous_trainer_rolls_out_on_a_server(tmp_path: Path) -> None:
    launch = launched(tmp_path, HEAD + TRAINED.format(value="plain"))
    assert (launch.value("vllm.use"), launch.value("vllm.mode")) == (True, "server")


def test_a_trainer_that_does_not_spawn_takes_anything(tmp_path: Path) -> None:
    code = HEAD + TRAINED.format(value="short").replace("Async", "")
    assert launched(tmp_path, code).unsendable == ()


def test_a_file_that_is_not_there_is_no_flaw(tmp_path: Path) -> None:
    verl = "python -m verl.trainer.main_ppo reward_model.reward_manager=prime "
    assert read([verl + "custom_reward_function.path=gone.py"], cwd=tmp_path).unsendable == ()
