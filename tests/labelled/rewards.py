"""Reward functions that are slow, wrong or missing, as the text of a user's file."""

from __future__ import annotations

_ARITHMETIC = """
from grpo_doctor_trainer.tasks import arithmetic_reward
"""


def brief() -> str:
    """Pays for answers that end, which the arithmetic task alone does not ask for."""
    return f"""{_ARITHMETIC}
def brief(completions, solution, completion_ids, **columns):
    scores = arithmetic_reward(completions, solution)
    return [score - 0.15 * len(ids) for score, ids in zip(scores, completion_ids)]
"""


def slow(seconds: float, *, rank: int | None = None) -> str:
    """Takes so long for a batch, on one rank or all."""
    condition = "True" if rank is None else f"os.environ.get('RANK') == '{rank}'"
    return f"""import os, time
{_ARITHMETIC}
def judged(completions, solution, **columns):
    if {condition}:
        time.sleep({seconds})
    return arithmetic_reward(completions, solution)

def judged_again(completions, solution, **columns):
    time.sleep({seconds})
    return [0.1 * len(c) for c in completions]
"""


def constant(share: float) -> str:
    """The same for all completions of so many prompts."""
    return f"""{_ARITHMETIC}
def flat(completions, solution, prompts, **columns):
    scores = arithmetic_reward(completions, solution)
    return [
        0.5 if (sum(map(ord, str(prompt))) * 7919% 100) < {100 * share} else score
        for prompt, score in zip(prompts, scores)
    ]
"""


def missing(share: float) -> str:
    """No reward for so many of the calls."""
    return f"""{_ARITHMETIC}
calls = 0

def fragile(completions, solution, **columns):
    global calls
    calls += 1
    scores = arithmetic_reward(completions, solution)
    return [None] * len(scores) if calls % 10 < {10 * share} else scores
"""


def dominated(factor: float) -> str:
    """Two components of which one is so many times as large."""
    return f"""{_ARITHMETIC}
def answer(completions, solution, **columns):
    return arithmetic_reward(completions, solution)

def style(completions, **columns):
    return [{factor} * (sum(map(ord, c)) % 97) / 97 for c in completions]
"""


def lengthy(per_token: float) -> str:
    """Pays for length."""
    return f"""
def lengthy(completions, completion_ids, **columns):
    return [{per_token} * len(ids) for ids in completion_ids]
"""


def hiccups(seconds: float) -> str:
    """Takes so long in every fourth call, as a service that is retried does."""
    return f"""import time
{_ARITHMETIC}
calls = 0

def retried(completions, solution, **columns):
    global calls
    calls += 1
    if calls % 4 == 0:
        time.sleep({seconds})
    return arithmetic_reward(completions, solution)
"""


def garbage(objects: int) -> str:
    """Leaves so many objects in cycles behind, in the trainer's own process."""
    return f"""{_ARITHMETIC}
kept = []

def littered(completions, solution, **columns):
    for _ in range({objects}):
        a, b = [], []
        a.append(b)
        b.append(a)
        kept.append([a])
    if len(kept) > 4 * {objects}:
        del kept[: {objects}]
    return arithmetic_reward(completions, solution)
"""
