"""vLLM's own server, as the trainer asks it: `vllm serve` with its RL endpoints.

Completions come from `/inference/v1/generate`, new weights go by `/collective_rpc` between `/pause`
and `/resume`. These endpoints are there with `VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`.
`grpo-doctor run` records what the engine does, from the server's `/metrics`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.requests import Completion

_T = TypeVar("_T")
_SHORT_S = 10.0
_RETRY_S = 0.5
_REMIND_S = 15.0
_GENERATE = "/inference/v1/generate"
_NEEDED = {"logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
_NOT_THERE = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}


class VllmServer:
    """One server; what takes it longer than `patience_s` is an error."""

    def __init__(self, address: str, command: str, patience_s: float) -> None:
        self.address, self.command, self._patience_s = address, command, patience_s

    def wait_until_ready(self, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
        """Wait for the server, have it make its first tokens, and return its settings.

        The settings are named as in vLLM's `ModelConfig`. `report` gets a line now and then.
        """
        return self._run(lambda session: self._wait_until_ready(session, seconds, report))

    def load(self, folder: str, version: str) -> None:
        """Have the server load all weights from safetensors files; `version` marks completions."""
        self._run(lambda session: self._load(session, folder, version))

    def generate(self, requests: Sequence[dict[str, Any]], version: str) -> list[Completion]:
        """Have prompts completed by the weights of this version, one request body per prompt.

        Returns:
            the completions of each prompt after those of the one before.
        """

        async def every(session: aiohttp.ClientSession) -> list[list[Completion]]:
            asked = (self._complete(session, request, version) for request in requests)
            return await asyncio.gather(*asked)

        return [completion for of_prompt in self._run(every) for completion in of_prompt]

    def _run(self, work: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, _T]]) -> _T:
        async def within_session() -> _T:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                return await work(session)

        return asyncio.run(within_session())

    async def _wait_until_ready(
        self, session: aiohttp.ClientSession, seconds: float, report: Callable[[str], None]
    ) -> dict[str, Any]:
        started, reported = time.monotonic(), 0.0
        while not await self._is_up(session):
            now = time.monotonic()
            if now - started > seconds:
                raise RolloutError(
                    f"no vLLM server is ready at {self.address} after {seconds:g} s. Start it: "
                    f"{self.command}; or raise --vllm_server_timeout"
                )
            if now - reported > _REMIND_S:
                reported = now
                report(f"waiting for vLLM at {self.address}; start it: {self.command}")
            await asyncio.sleep(_RETRY_S)
        answer = await self._ask(session, "GET", "/server_info?config_format=json")
        settings: dict[str, Any] = json.loads(answer)["vllm_config"]["model_config"]
        for name, value in _NEEDED.items():
            if (found := settings.get(name)) != value:
                raise self._failure(f"has {name} {found} instead of {value}")
        # A trainer that was killed during a sync leaves the server paused.
        await self._ask(session, "POST", "/resume", {})
        # The first tokens wait for kernels to be compiled: here, not in the first rollout.
        first = {"token_ids": [0], "sampling_params": {"max_tokens": 2, "ignore_eos": True}}
        await self._ask(session, "POST", _GENERATE, first, self._patience_s)
        return settings

    async def _is_up(self, session: aiohttp.ClientSession) -> bool:
        limit = aiohttp.ClientTimeout(total=_SHORT_S)
        try:
            async with session.get(f"{self.address}/health", timeout=limit) as answer:
                return bool(answer.ok)
        except (aiohttp.ClientError, asyncio.TimeoutError):
            return False

    async def _load(self, session: aiohttp.ClientSession, folder: str, version: str) -> None:
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        # A pause clears the caches too, which were computed with the old weights.
        await self._ask(session, "POST", "/pause?mode=wait", {}, self._patience_s)
        await self._ask(session, "POST", "/collective_rpc", reload, self._patience_s)
        await self._ask(session, "POST", "/update_weight_version", {"new_version": version})
        await self._ask(session, "POST", "/resume", {})

    async def _complete(
        self, session: aiohttp.ClientSession, request: dict[str, Any], version: str
    ) -> list[Completion]:
        text = await self._ask(session, "POST", _GENERATE, request, self._patience_s)
        answer = json.loads(text)
        completions = []
        for choice in answer["choices"]:
            if choice["finish_reason"] not in {"stop", "length"}:
                raise self._failure(f"gave up a completion ({choice['finish_reason']})")
            other = {each["version"] for each in choice.get("weight_versions") or ()} - {version}
            if other:
                raise self._failure(
                    f"has weights {other.pop()} and not {version}: another trainer uses it, or it "
                    "was restarted. Give this run a server of its own"
                )
            logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
            read = answer["usage"]["prompt_tokens"]
            completions.append(Completion(choice["token_ids"], logprobs, read))
        return completions

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        seconds: float = _SHORT_S,
    ) -> str:
        limit, page = aiohttp.ClientTimeout(total=seconds), path.partition("?")[0]
        try:
            async with session.request(
                method, self.address + path, json=body, timeout=limit
            ) as answer:
                text: str = await answer.text()
        except asyncio.TimeoutError as error:
            option = " (--vllm_timeout)" if seconds == self._patience_s else ""
            raise self._failure(f"did not answer {page} within {seconds:g} s{option}") from error
        except aiohttp.ClientError as error:
            raise self._failure(f"is gone ({error or type(error).__name__})") from error
        if answer.status in _NOT_THERE:
            raise self._failure(f"has no {page}: it was started without RL endpoints")
        if not answer.ok:
            raise self._failure(f"failed at {page} ({answer.status}): {text[:300]}")
        return text

    def _failure(self, what: str) -> RolloutError:
        return RolloutError(
            f"the vLLM server at {self.address} {what}. What led to it is in its output; start it "
            f"with: {self.command}"
        )
