"""Completions that are scored while others are generated: the same scores, errors, call shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.batch import PromptBatch
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.rows import Row
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import Answer
from grpo_doctor_trainer.rewards.registry import find_rewards
from grpo_doctor_trainer.rewards.scoring import Rewards

IDS = [[1], [2, 2], [3, 3, 3], [4]]
TEXTS = ["".join(map(str, ids)) for ids in IDS]
TOKENIZER = SimpleNamespace(
    batch_decode=lambda ids, **_options: ["".join(map(str, row)) for row in ids]
)
# Each call leaves its completions in a file, with a line of its own.
NOTED = """
import pathlib, sys
def note(completions, name):
    with open(pathlib.Path(__file__).with_name(name), "a") as file:
        file.write(" ".join(completions) + "\\n")
def alone(completions, completion_ids, level, prompts):
    note(completions, "alone")
    parts = zip(completion_ids, level, prompts)
    return [sum(ids) + 10 * rank + len(text) for ids, rank, text in parts]
alone.per_completion = True
async def awaited(completions, **columns):
    note(completions, "awaited")
    return [None if text == "1" else 0.1 * len(text) for text in completions]
awaited.per_completion = True
def together(completions):
    note(completions, "together")
    return [float(len(completions))] * len(completions)
"""
Make = Callable[..., Rewards]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Writes a file and makes functions of it; ends the processes."""
    made: list[Rewards] = []

    def make(text: str, *names: str, **options: Any) -> Rewards:
        path = tmp_path / "rewards.py"
        path.write_text(text, encoding="utf-8")
        sources = [name if name == "length" else f"{path}:{name}" for name in names]
        config = TrainerConfig(reward_funcs=sources, max_completion_length=3, **options)
        made.append(Rewards(find_rewards(sources, {"level"}), config))
        return made[-1]

    yield make
    for rewards in made:
        rewards.close()


def batch() -> tuple[PromptBatch, TokenBatch]:
    rows = [Row([], {"level": index}) for index in range(len(IDS))]
    prompts = torch.ones(len(IDS), 1, dtype=torch.long)
    tokens = torch.tensor([ids + [0] * (3 - len(ids)) for ids in IDS])
    mask = torch.tensor([[1] * len(ids) + [0] * (3 - len(ids)) for ids in IDS])
    texts = [str(10**index) for index in range(len(IDS))]
    return PromptBatch(rows, texts, prompts, prompts), TokenBatch(prompts, prompts, tokens, mask)


def scored(rewards: Rewards, *early: int, until: Callable[[], bool] = lambda: True) -> torch.Tensor:
    """Scores the batch, of which some ended early, the rest not before `until` holds."""
    prompts, tokens = batch()
    if early:
        on_ended = rewards.during_rollout(prompts, TOKENIZER)
        assert on_ended is not None
        for index in early:
            on_ended({index: IDS[index]})
        while not until():
            on_ended({})
            time.sleep(0.01)
    return rewards.score(prompts, tokens, TEXTS)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("early", [(2,), (3, 0), (1, 3, 2, 0)], ids=str)
def test_scores_are_those_of_a_whole_batch(
    make: Make, tmp_path: Path, early: tuple[int, ...], workers: int
) -> None:
    rewards = make(
        NOTED, "alone", "together", "length", "awaited", reward_num_workers=workers
    )  # fmt: skip
    expected = scored(rewards)
    assert expected[:, 0].tolist() == [2, 16, 32, 38]
    for name in ("alone", "awaited", "together"):
        assert (tmp_path / name).read_text() == "1 22 333 4\n"  # once, as ever
        (tmp_path / name).unlink()
    paths = [tmp_path / "alone", tmp_path / "awaited"]
    again = scored(rewards, *early, until=lambda: all(path.exists() for path in paths))
    assert torch.equal(again.nan_to_num(-1), expected.nan_to_num(-1))
    assert (tmp_path / "together").read_text() == "1 22 333 4\n"
    for path in paths:
        lines = path.read_text().splitlines()
        assert lines[0] != "1 22 333 4"
        assert sorted(" ".join(lines).split()) == sorted(TEXTS)
    assert torch.equal(scored(rewards).nan_to_num(-1), expected.nan_to_num(-1))


def test_time_before_the_last_completion_is_recorded_as_the_rollouts(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[str, float] = {}
    monkeypatch.setattr("grpo_doctor_trainer.rewards.scoring.counter", counted.__setitem__)
    text = (
        NOTED
        + "def slow(completions):\n    import time\n    time.sleep(0.05)\n"
        + (
            "    note(completions, 'slow')\n    return [1] * len(completions)\n"
            "slow.per_completion = True\n"
        )
    )
    rewards = make(text, "slow", reward_num_workers=1)
    scored(rewards, 0, until=(tmp_path / "slow").exists)
    assert 0.05 <= counted["rollout/reward_s"] <= counted["reward/slow_s"]
    assert counted["reward/slow_s"] >= 0.1  # both calls
    counted.clear()
    scored(rewards)
    assert "rollout/reward_s" not in counted


def test_only_what_began_before_a_moment_counts_as_before_it() -> None:
    answer = Answer("name", (0,), [1.0], began_s=5.0, seconds=2.0)
    assert [answer.seconds_before(at) for at in (4.0, 6.5, 9.0)] == [0.0, 1.5, 2.0]


def test_where_no_function_may_see_a_part_nothing_is_scored_early(make: Make) -> None:
    prompts, _ = batch()
    assert make(NOTED, "together").during_rollout(prompts, TOKENIZER) is None
    off = make(NOTED, "alone", overlap_rewards=False)
    assert off.during_rollout(prompts, TOKENIZER) is None
    without = make(NOTED, "alone", reward_num_workers=0)
    assert without.during_rollout(prompts, TOKENIZER) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('key')", "raised KeyError: 'key'"),
        ("return [float('nan')]", "returned nan for the completion '333'"),
        ("import os; os._exit(3)", "ended with exit code 3"),
        ("return []", "returned 0 values for 1"),
    ],
)
def test_what_fails_early_is_said_once_the_rollout_is_over(
    make: Make, tmp_path: Path, body: str, message: str
) -> None:
    text = f"""import pathlib
def mine(completions):
    pathlib.Path({str(tmp_path)!r}, 'x').touch()
    {body}
mine.per_completion = True
"""
    rewards = make(text, "mine")
    with pytest.raises(RewardError) as error:
        scored(rewards, 2, until=(tmp_path / "x").exists)
    assert message in str(error.value)
    assert "rewards.py:mine" in str(error.value)
    with pytest.raises(RewardError):
        scored(rewards)


def test_an_early_call_that_hangs_is_named_with_its_line(make: Make, tmp_path: Path) -> None:
    text = f"""import pathlib, time
def mine(completions):
    pathlib.Path({str(tmp_path)!r}, 'x').touch()
    time.sleep(600)
mine.per_completion = True
"""
    rewards = make(text, "mine", reward_timeout=0.5)
    with pytest.raises(RewardError) as error:
        scored(rewards, 2, until=(tmp_path / "x").exists)
    assert "gave no answer for 1 completions within 0.5 s" in str(error.value)
    assert "rewards.py, line 4, in mine" in str(error.value)
    assert "the first completion is '333'" in str(error.value)


def test_an_early_column_that_cannot_be_sent_is_named(make: Make) -> None:
    text = "def mine(completions, level):\n    return [1]\nmine.per_completion = True\n"
    rewards = make(text, "mine")
    prompts, tokens = batch()
    for row in prompts.rows:
        row.columns["level"] = lambda: 1
    on_ended = rewards.during_rollout(prompts, TOKENIZER)
    assert on_ended is not None
    on_ended({0: IDS[0]})
    with pytest.raises(RewardError, match="the column level cannot be sent"):
        rewards.score(prompts, tokens, TEXTS)
