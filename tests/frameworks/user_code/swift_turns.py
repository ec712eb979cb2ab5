"""ms-swift's own multi-turn loop with an engine that only sleeps: FOLDER SECONDS.

As a server of `swift rollout` runs it, without vLLM. Stopwatches are FOLDER/<part>.txt, in ns.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from swift.infer_engine import protocol  # type: ignore[import-not-found, unused-ignore]
from swift.rollout.multi_turn import (  # type: ignore[import-not-found, unused-ignore]
    MultiTurnScheduler,
)

FOLDER, SECONDS = Path(sys.argv[1]), float(sys.argv[2])


async def spend(part: str) -> None:
    begun_ns = time.monotonic_ns()
    await asyncio.sleep(SECONDS)
    with (FOLDER / f"{part}.txt").open("a") as file:
        file.write(f"{begun_ns} {time.monotonic_ns()}\n")


class Engine:
    template = None
    tokenizer = SimpleNamespace(decode=lambda *_, **__: "four")

    async def infer_async(self, *_: Any, **__: Any) -> Any:
        await spend("engine")
        message = protocol.ChatMessage(role="assistant", content="four")
        choice = protocol.ChatCompletionResponseChoice(
            index=0, message=message, finish_reason="stop", logprobs=None, token_ids=[1, 2]
        )
        usage = protocol.UsageInfo(prompt_tokens=1, completion_tokens=2, total_tokens=3)
        return protocol.ChatCompletionResponse(model="tiny", choices=[choice], usage=usage)

    async def _batch_infer_stream(self, tasks: list[Any], *_: Any) -> list[Any]:
        return await asyncio.gather(*tasks)


class Maze(MultiTurnScheduler):  # type: ignore[misc, unused-ignore]
    async def on_turn_end(self, *_: Any) -> dict[str, Any]:
        await spend("tool")
        return {}

    def step(self, infer_request: Any, *_: Any) -> dict[str, Any]:
        infer_request.messages.append({"role": "user", "content": "Go on."})
        return {"infer_request": infer_request}


def main() -> None:
    prompt = {"role": "user", "content": "2+2"}
    asked = [protocol.RolloutInferRequest(messages=[dict(prompt)]) for _ in range(8)]
    scheduler = Maze(infer_engine=Engine(), max_turns=3)
    outputs = asyncio.run(scheduler.async_infer(asked, protocol.RequestConfig(n=1)))
    assert [one.rollout_infos["num_turns"] for one in outputs] == [3] * 8


if __name__ == "__main__":
    main()
