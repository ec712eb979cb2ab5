"""A rollout for verl on CPUs: transformers' `generate` in one actor of Ray per replica."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]
import torch
from verl.workers.rollout.base import BaseRollout  # type: ignore[import-not-found, unused-ignore]
from verl.workers.rollout.replica import (  # type: ignore[import-not-found, unused-ignore]
    RolloutReplica,
    TokenOutput,
)

_AT_ONCE = 64
# Two runs are alike only so: which of the servers samples for whom differs from run to run.
GREEDY = os.environ.get("ROLLOUT") == "greedy"
# Instead of the model's answers: calls of the tools of `verl_tools` in turn, then an answer, each
# after so many seconds.
ENGINE_SLEEP_S = os.environ.get("ENGINE_SLEEP_S")
CALL = '<tool_call>{"name": "%s", "arguments": {"word": "four"}}</tool_call>'


class RolloutServer:
    """Generates for one replica, one prompt at a time in a thread; takes new weights between."""

    def __init__(self, path: str, seed: int) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.asked = 0
        self.lock = threading.Lock()
        self.step = 0

    def decode(self, prompt: list[int], count: int, temperature: float) -> tuple[Any, Any]:
        with self.lock, torch.no_grad():
            ids = torch.tensor([prompt])
            output = self.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                return_dict_in_generate=True, output_logits=True,
                **({} if GREEDY else {"temperature": temperature, "top_k": 0}),
                do_sample=not GREEDY,
            )  # fmt: skip
        tokens = output.sequences[0, len(prompt) :].tolist()
        rows = (torch.log_softmax(logits[0].float(), -1) for logits in output.logits)
        return tokens, [row[token].item() for row, token in zip(rows, tokens, strict=True)]

    async def generate(
        self, prompt_ids: Any, sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> Any:
        if ENGINE_SLEEP_S is not None:
            return await self.scripted(list(prompt_ids))
        limit = sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens") or 16
        warmth = sampling_params.get("temperature") or 1.0
        tokens, logprobs = await asyncio.to_thread(self.decode, list(prompt_ids), limit, warmth)
        return TokenOutput(
            token_ids=tokens, log_probs=logprobs, stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )  # fmt: skip

    async def scripted(self, prompt: list[int]) -> Any:
        begun_ns = time.monotonic_ns()
        await asyncio.sleep(float(ENGINE_SLEEP_S or 0))
        with Path(os.environ["TRUTH"], "engine.txt").open("a") as log:
            log.write(f"{begun_ns} {time.monotonic_ns()}\n")
        text = self.tokenizer.decode(prompt)
        self.asked += 1
        called = text.count("tool_call>") // 2
        says = (
            CALL % ("look_up", "browse")[called]
            if called < 2
            else f"it is {'4' * (self.asked % 5)}"
        )
        tokens = [*self.tokenizer.encode(says), self.tokenizer.eos_token_id]
        return TokenOutput(
            token_ids=tokens, log_probs=[-5.0] * len(tokens), stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )  # fmt: skip

    async def load(self, weights: dict[str, Any]) -> None:
        self.model.load_state_dict(weights, strict=False)

    async def set_global_steps(self, step: int) -> None:
        self.step = step

    async def abort_all_requests(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"aborted_count": 0, "request_ids": []}

    async def wake_up(self, *_: Any, **__: Any) -> None: ...

    async def sleep(self, *_: Any, **__: Any) -> None: ...

    async def resume_generation(self, *_: Any, **__: Any) -> None: ...

    async def clear_kv_cache(self, *_: Any, **__: Any) -> None: ...

    async def release_kv_cache(self, *_: Any, **__: Any) -> None: ...

    async def resume_kv_cache(self, *_: Any, **__: Any) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...


def _name(replica: int) -> str:
    return f"rollout_server_{replica}"


class Replica(RolloutReplica):  # type: ignore[misc, unused-ignore]
    async def launch_servers(self) -> None:
        config = self.model_config
        path = config.get("path") if hasattr(config, "get") else config.path
        options = {"name": _name(self.replica_rank), "max_concurrency": _AT_ONCE, "num_cpus": 0.1}
        server = ray.remote(RolloutServer).options(**options).remote(path, self.replica_rank)
        await server.clear_kv_cache.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"127.0.0.1:{20_000 + self.replica_rank}"


class Adapter(BaseRollout):  # type: ignore[misc, unused-ignore]
    """A rank's end of its replica."""

    handle: Any = None

    @property
    def server(self) -> Any:
        if self.handle is None:
            self.handle = ray.get_actor(_name(torch.distributed.get_rank()))
        return self.handle

    async def resume(self, tags: Any) -> None:
        await self.server.wake_up.remote(tags=tags)

    async def release(self) -> None:
        await self.server.sleep.remote()

    async def update_weights(self, weights: Any, global_steps: Any = None, **_: Any) -> None:
        state = {}
        if hasattr(weights, "__aiter__"):
            async for name, weight in weights:
                state[name] = weight.detach().float().cpu().clone()
        else:
            state = {name: weight.detach().float().cpu().clone() for name, weight in weights}
        await self.server.load.remote(state)
        if global_steps is not None:
            await self.server.set_global_steps.remote(global_steps)
