"""Finding reward functions, calling them in a process or here, and refusing what is no reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.functions import find_rewards, load
from grpo_doctor_trainer.rewards.scoring import Rewards, combine

COLUMNS: dict[str, Any] = {"solution": "2", "level": 3}
AWAITS = """import asyncio
async def wait():
    await asyncio.sleep(600)

async def mine(completions):
    await wait()
"""
Score = Callable[..., torch.Tensor]


def batch(count: int, columns: dict[str, Any]) -> tuple[PromptBatch, TokenBatch]:
    rows = [Row([{"role": "user", "content": "1+1"}], columns)] * count
    ones = torch.ones(count, 3, dtype=torch.long)
    mask = ones.clone()
    mask[:, 2] = 0
    prompts = PromptBatch(rows, ["1+1"] * count, ones, ones)
    return prompts, TokenBatch(ones, ones, ones * 7, mask)


@pytest.fixture(params=[0, 1, 2], ids=lambda n: f"{n}workers")
def workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def score(tmp_path: Path) -> Iterator[Score]:
    """Writes a file, scores `2 3` with functions of it, and ends the processes."""
    made: list[Rewards] = []

    def score(
        text: str,
        *names: str,
        workers: int = 1,
        completions: tuple[str, ...] = ("2", "3"),
        columns: dict[str, Any] = COLUMNS,
        **options: Any,
    ) -> torch.Tensor:
        sources = [n if n in ("accuracy", "format") else in_file(tmp_path, text, n)
                   for n in names or ("mine",)]  # fmt: skip
        config = TrainerConfig(reward_funcs=sources, reward_num_workers=workers, **options)
        rewards = Rewards(find_rewards(sources, set(columns)), config)
        made.append(rewards)
        return rewards.score(*batch(len(completions), columns), list(completions))

    yield score
    for rewards in made:
        rewards.close()
        rewards.close()


def in_file(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / "rewards.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:{name}"


def returning(value: str) -> str:
    return f"import math\ndef mine(completions, **columns):\n    return {value}\n"


def refusal(score: Score, text: str, *names: str, **options: Any) -> str:
    with pytest.raises(RewardError) as error:
        score(text, *names, **options)
    assert f"rewards.py:{names[0] if names else 'mine'}" in str(error.value)
    return str(error.value)


def test_built_in_functions_see_their_columns(score: Score, workers: int) -> None:
    completions = ("2", "3", "<think></think><answer>4/2</answer>")
    scores = score("", "accuracy", "format", workers=workers, completions=completions)
    assert scores.tolist() == [[1, 0], [0, 0], [1, 1]]


def test_functions_sync_and_async_and_of_trl_style(score: Score, workers: int) -> None:
    text = """
def brief(completions, level, *, prompts, extra=1):
    return [level[0] + len(prompts[0]) + extra for _ in completions]

async def trl(prompts, completions, completion_ids, **kwargs):
    assert kwargs == {"solution": ["2", "2"], "level": [3, 3]}
    return [float(len(ids)) for ids in completion_ids]

class Model:
    async def __call__(self, completions, **columns):
        return [None, 0.5]

model = Model()
partial = lambda completions, **columns: trl(completions=completions, **columns)
"""
    scores = score(text, "brief", "trl", "model", "partial", workers=workers)
    assert scores.nan_to_num(-1).tolist() == [[7, 2, -1, 2], [7, 2, 0.5, 2]]


def test_async_functions_wait_together(score: Score, workers: int) -> None:
    text = """
import asyncio
met = []
async def first(completions, **columns):
    met.append(asyncio.Event())
    await met[0].wait()  # only the other one ends this
    return [1, 1]
async def other(completions, **columns):
    while not met:
        await asyncio.sleep(0)
    met[0].set()
    return [2, 2]
"""
    if workers == 2:
        pytest.skip("each has its own worker then")
    assert score(text, "first", "other", workers=workers).tolist() == [[1, 2], [1, 2]]


def test_different_functions_run_at_once_on_two_workers(score: Score, tmp_path: Path) -> None:
    text = f"""
import pathlib, time
here, there = pathlib.Path({str(tmp_path)!r}, "here"), pathlib.Path({str(tmp_path)!r}, "there")
def meet(mine, yours):
    mine.touch()
    while not yours.exists():
        time.sleep(0.01)
    return [1, 1]
def first(completions): return meet(here, there)
def other(completions): return meet(there, here)
"""
    assert score(text, "first", "other", workers=2).tolist() == [[1, 1], [1, 1]]


def test_state_of_a_file_lasts_and_is_shared_by_its_functions(tmp_path: Path) -> None:
    text = """
calls = []
def count(completions): calls.append(1); return [len(calls)] * 2
def again(completions): return [len(calls)] * 2
"""
    sources = [in_file(tmp_path, text, "count"), in_file(tmp_path, text, "again")]
    rewards = Rewards(find_rewards(sources, set(COLUMNS)), TrainerConfig(reward_funcs=sources))
    try:
        for number in (1, 2):
            scores = rewards.score(*batch(2, COLUMNS), ["2", "3"])
            assert scores.tolist() == [[number, number]] * 2
    finally:
        rewards.close()


def test_two_functions_of_one_name_are_told_apart(tmp_path: Path) -> None:
    source = in_file(tmp_path, "def accuracy(completions): ...\n", "accuracy")
    names = [function.name for function in find_rewards(["accuracy", source], {"solution"})]
    assert names == ["accuracy", "accuracy_1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def other(completions): ...", "has no function mine"),
        ("mine = 3", "has no function mine"),
        ("import no_such_module", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("def mine(:", "cannot be imported: SyntaxError"),
        ("def mine(completions, key): ...", "needs the column key"),
        ("def mine(completions, key, sign): ...", "needs the column key and sign"),
        ("def mine(completions, /): ...", "takes completions by position only"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (function,) = find_rewards([in_file(tmp_path, text + "\n")], {"level"})
    with pytest.raises(RewardError, match=message) as error:
        load(function, TrainerConfig())
    assert "rewards.py:mine" in str(error.value)


def test_a_file_that_cannot_be_used_is_told_by_its_process(score: Score) -> None:
    assert "needs the column key" in refusal(score, "def mine(completions, key): ...\n")
    message = refusal(score, "import os\nos.kill(os.getpid(), 9)\n")
    assert "was ended by SIGKILL, as the kernel does when memory runs out" in message


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="neither one of accuracy, format, arithmetic"):
        find_rewards(["acuracy"], {"solution"})
    with pytest.raises(RewardError, match="there is no file"):
        find_rewards([f"{tmp_path}/missing.py:mine"], {"solution"})
    (accuracy,) = find_rewards(["accuracy"], set())
    with pytest.raises(RewardError, match=r"needs the column solution.*only the prompt"):
        load(accuracy, TrainerConfig())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("math.nan", "nan"),
        ("math.inf", "inf"),
        ("'1'", "'1'"),
        ("[1.0]", "[1.0]"),
        ("10**400", "1000"),
        ("lambda: 1", "<function"),
    ],
)
def test_values_that_are_no_numbers(score: Score, value: str, shown: str) -> None:
    for workers in (0, 1):
        message = refusal(score, returning(f"[1.0, {value}]"), workers=workers)
        assert f"returned {shown}" in message
        assert "for the completion '3'" in message


@pytest.mark.parametrize(
    ("returned", "requirement"),
    [
        ("[1.0]", "1 values for 2"),
        ("[]", "0 values"),
        ("None", "NoneType"),
        ("1.0", "float"),
        ("'ab'", "str"),
        ("(1 for _ in completions)", "generator"),
    ],
)
def test_results_of_another_shape(score: Score, returned: str, requirement: str) -> None:
    for workers in (0, 1):
        assert f"returned {requirement}" in refusal(score, returning(returned), workers=workers)


@pytest.mark.parametrize(
    "returned",
    [
        "__import__('numpy').array([1, 2])",
        "(True, 2)",
    ],
)
def test_arrays_and_tensors_are_lists(score: Score, returned: str) -> None:
    assert score(returning(returned)).tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_that_raises_is_named_with_the_line(
    score: Score, workers: int, kind: str
) -> None:
    text = f"class Odd(Exception):\n    pass\n{kind} mine(**columns):\n    raise Odd('key')\n"
    message = refusal(score, text, workers=workers)
    assert "raised Odd: key" in message
    assert "rewards.py, line 4)" in message
    assert "it was given solution, level, prompts, completions" in message


def test_a_function_that_exits_raises_and_one_for_chats_gets_a_hint(score: Score) -> None:
    assert "raised SystemExit: 3" in refusal(
        score, "import sys\ndef mine(**columns):\n    sys.exit(3)\n"
    )
    text = "def mine(completions): return [len(c[0]['content']) for c in completions]\n"
    assert "Completions are text here, not chat messages" in refusal(score, text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import time\ndef mine(completions):\n    time.sleep(600)\n", 3),
        (AWAITS, None),
        ("def mine(completions):\n    while sum(range(9)): pass\n", 2),
    ],
    ids=["sleeps", "awaits", "spins"],
)  # fmt: skip
def test_a_function_that_hangs_is_ended_by_name_and_line(
    score: Score, text: str, line: int | None
) -> None:
    message = refusal(score, text, reward_timeout=1.5)
    assert "gave no answer for 2 completions within 1.5 s (--reward_timeout)" in message
    assert ("; it was at " in message) == (line is not None)
    assert line is None or f"rewards.py, line {line}, in " in message
    assert "the first completion is '2'" in message


def test_what_hangs_in_c_is_ended_too_with_the_line(score: Score) -> None:
    text = "import re\ndef mine(completions):\n    return 9 ** (9 ** 9)\n"
    message = refusal(score, text, reward_timeout=1.5)
    assert "rewards.py, line 3, in mine" in message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV at "),
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL, as the kernel does when memory runs out"),
    ],
)
def test_a_function_that_takes_its_process_along(score: Score, body: str, message: str) -> None:
    for kind in ("def", "async def"):
        text = f"{kind} mine(completions):\n    {body}\n"
        assert message in refusal(score, text)


def test_a_column_that_cannot_be_sent_is_named(score: Score) -> None:
    columns = {"solution": "2", "check": lambda: 1}
    message = refusal(score, "def mine(completions, check): ...\n", columns=columns)
    assert "the columns solution, check, prompts, completions, completion_ids cannot be" in message
    assert "--reward_num_workers 0" in message


def test_none_is_not_applicable_and_left_out_of_the_sum() -> None:
    nan = math.nan
    scores = torch.tensor([[nan, 1.0], [2.0, nan], [nan, nan]])
    assert combine(scores, [10.0, 0.5]).nan_to_num(-1).tolist() == [0.5, 20.0, -1.0]


def test_weights_multiply() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert combine(scores, [2.0, -1.0]).tolist() == [0.0, 2.0]
