"""A user's agents for OpenRLHF that sleep, and write when each call began and ended.

AGENT=turns: an environment of three turns; AGENT=reward: one turn, and a reward with too few
threads. TRUTH is the folder of what is written, `TOOL_SLEEP_S` and `REWARD_SLEEP_S` say how long.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import torch
from openrlhf.utils.agent import (  # type: ignore[import-not-found, unused-ignore]
    AgentInstanceBase,
    MultiTurnAgentExecutor,
    SingleTurnAgentExecutor,
)
from vllm import SamplingParams  # type: ignore[import-not-found, unused-ignore]

TURNS = 3


def note(part: str, begun_ns: int) -> None:
    with Path(os.environ["TRUTH"], f"{part}.txt").open("a") as log:
        log.write(f"{begun_ns} {time.monotonic_ns()}\n")


async def spend(part: str, seconds: float) -> None:
    begun_ns = time.monotonic_ns()
    await asyncio.sleep(seconds)
    note(part, begun_ns)


class AgentInstance(AgentInstanceBase):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        self.turn = 0

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        await spend("reset", float(os.environ["TOOL_SLEEP_S"]) / 2)
        return {"observation": states["observation"]}

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.turn += 1
        await spend("step", float(os.environ["TOOL_SLEEP_S"]))
        return {
            "rewards": torch.tensor(len(states["action_text"]) % 7 / 7), "scores": 0.5,
            "environment_feedback": "\nGo on.\n", "done": self.turn == TURNS,
        }  # fmt: skip


def reward_func(queries: list[str], prompts: list[str], labels: Any, **_: Any) -> dict[str, Any]:
    begun_ns = time.monotonic_ns()
    time.sleep(float(os.environ["REWARD_SLEEP_S"]))
    scores = torch.tensor([len(query) % 7 / 7 for query in queries])
    note("reward", begun_ns)
    return {"rewards": scores, "scores": scores, "extra_logs": {}}


class Turns(MultiTurnAgentExecutor):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__(AgentInstance)

    async def execute(self, sampling_params: Any, **more: Any) -> Any:
        """Each turn ends with one of many tokens, so that three turns fit."""
        short = SamplingParams(
            temperature=1.0, max_tokens=32, stop_token_ids=list(range(0, 256, 8)),
            logprobs=sampling_params.logprobs,
        )  # fmt: skip
        return await super().execute(sampling_params=short, **more)


class Judged(SingleTurnAgentExecutor):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__(__file__)

    async def _fetch_rewards_via_func(self, *args: Any) -> Any:
        note("asked", time.monotonic_ns())
        return await super()._fetch_rewards_via_func(*args)


AgentExecutor = Turns if os.environ["AGENT"] == "turns" else Judged
