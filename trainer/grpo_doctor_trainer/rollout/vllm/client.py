"""vLLM's own server, as the trainer asks it: `vllm serve` with its RL endpoints.

Completions come from `/inference/v1/generate`, new weights go by `/collective_rpc` between `/pause`
and `/resume`, and `/metrics` shows how the engine is. These endpoints are there with
`VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from grpo_doctor_probes.hooks.engine_load import EngineLoad
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.requests import Completion

_P = ParamSpec("_P")
_T = TypeVar("_T")
_SHORT_S = 10.0
_RETRY_S = 0.5
_REMIND_S = 15.0
_LOOK_S = 0.1
_FEWEST_LOOKS = 3  # peaks and means of fewer samples say nothing
_METRIC = re.compile(r"^vllm:(\w+)(?:\{[^\n]*\})? (\S+)$", re.MULTILINE)
_TOTALS = {
    "steps": "iteration_tokens_total_count",
    "preemptions": "num_preemptions_total",
    "prefix_cache_queried_tokens": "prefix_cache_queries_total",
    "prefix_cache_hit_tokens": "prefix_cache_hits_total",
}
_NEEDED = {"logprobs_mode": "processed_logprobs", "generation_config": "vllm"}
_NOT_THERE = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}


class _Token(Struct):
    logprob: float


class _Tokens(Struct):
    content: list[_Token]


class _Version(Struct):
    version: str


class _Choice(Struct):
    token_ids: list[int]
    logprobs: _Tokens
    finish_reason: str | None
    weight_versions: list[_Version] | None = None


class _Usage(Struct):
    prompt_tokens: int


class _Generated(Struct):
    choices: list[_Choice]
    usage: _Usage


def _blocking(method: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return asyncio.run(method(*args, **kwargs))

    return call


class VllmServer:
    """One server."""

    def __init__(self, address: str, command: str, patience_s: float) -> None:
        self.address, self.command, self._patience_s = address, command, patience_s

    @_blocking
    async def wait_until_ready(
        self, seconds: float, report: Callable[[str], None]
    ) -> dict[str, Any]:
        """Wait for the server, have it make its first tokens, and return its settings.

        The settings are named as in vLLM's `ModelConfig`. `report` gets a line now and then.
        """
        started, reported = time.monotonic(), 0.0
        async with _session() as session:
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
            await self._ask(session, "POST", "/inference/v1/generate", first, self._patience_s)
        return settings

    async def _is_up(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(f"{self.address}/health", timeout=_within(_SHORT_S)) as answer:
                return bool(answer.ok)
        except (aiohttp.ClientError, asyncio.TimeoutError):
            return False

    @_blocking
    async def load(self, folder: str, version: str) -> None:
        """Have the server load all weights from safetensors files; `version` marks completions."""
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        async with _session() as session:
            # A pause clears the caches too, which were computed with the old weights.
            await self._ask(session, "POST", "/pause?mode=wait", {}, self._patience_s)
            await self._ask(session, "POST", "/collective_rpc", reload, self._patience_s)
            await self._ask(session, "POST", "/update_weight_version", {"new_version": version})
            await self._ask(session, "POST", "/resume", {})

    @_blocking
    async def generate(
        self, requests: Sequence[dict[str, Any]], version: str
    ) -> tuple[list[Completion], EngineLoad | None]:
        """Have prompts completed by the weights of this version, one request body per prompt.

        Returns:
            the completions of each prompt after those of the one before, and what the engine did
            meanwhile; None where that was too short.
        """
        async with _session() as session:
            tasks = [
                asyncio.create_task(self._complete(session, request, version))
                for request in requests
            ]
            watch, waiting = _Watch(), set(tasks)
            try:
                while waiting:
                    done, waiting = await asyncio.wait(
                        waiting, timeout=_LOOK_S, return_when="FIRST_COMPLETED"
                    )
                    for task in done:
                        task.result()
                    await watch.look(self._ask(session, "GET", "/metrics"), len(waiting))
                    if time.monotonic() - watch.last_news_s > self._patience_s:
                        raise self._failure(
                            f"has made no token for {self._patience_s:g} s (--vllm_timeout)"
                        )
            finally:
                for task in tasks:
                    task.cancel()
                # Of all: asyncio prints a traceback of each failed one that is not retrieved.
                await asyncio.gather(*tasks, return_exceptions=True)
        completions = [completion for task in tasks for completion in task.result()]
        return completions, watch.load if watch.load.samples >= _FEWEST_LOOKS else None

    async def _complete(
        self, session: aiohttp.ClientSession, request: dict[str, Any], version: str
    ) -> list[Completion]:
        text = await self._ask(session, "POST", "/inference/v1/generate", request, None)
        answer = msgspec.json.decode(text, type=_Generated)
        for choice in answer.choices:
            if choice.finish_reason not in {"stop", "length"}:
                raise self._failure(f"gave up a completion ({choice.finish_reason})")
            other = {each.version for each in choice.weight_versions or ()} - {version}
            if other:
                raise self._failure(
                    f"has weights {other.pop()} and not {version}: another trainer uses it, or it "
                    "was restarted. Give this run a server of its own"
                )
        return [
            Completion(
                choice.token_ids,
                [token.logprob for token in choice.logprobs.content],
                answer.usage.prompt_tokens,
            )
            for choice in answer.choices
        ]

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        seconds: float | None = _SHORT_S,
    ) -> str:
        timeout, page = _within(seconds), path.partition("?")[0]
        try:
            async with session.request(
                method, self.address + path, json=body, timeout=timeout
            ) as answer:
                text: str = await answer.text()
                if answer.status in _NOT_THERE:
                    raise self._failure(f"has no {page}: it was started without RL endpoints")
                if not answer.ok:
                    raise self._failure(f"failed at {page} ({answer.status}): {text[:300]}")
                return text
        except asyncio.TimeoutError as error:
            raise self._failure(f"did not answer {page} within {seconds:g} s") from error
        except aiohttp.ClientError as error:
            raise self._failure(f"is gone ({error or type(error).__name__})") from error

    def _failure(self, what: str) -> RolloutError:
        return RolloutError(
            f"the vLLM server at {self.address} {what}. What led to it is in its output; start it "
            f"with: {self.command}"
        )


class _Watch:
    """Samples the engine during a rollout."""

    def __init__(self) -> None:
        self.load = EngineLoad(*_TOTALS)
        self._before: dict[str, float] = {}
        self.last_news_s = self._last_look_s = time.monotonic()
        self._news: tuple[float, ...] = ()

    async def look(self, metrics: Coroutine[Any, Any, str], waiting: int) -> None:
        """Read `/metrics` if it is time to; so many requests are still waiting."""
        now = time.monotonic()
        if self._news and now - self._last_look_s < _LOOK_S / 2:
            metrics.close()
            return
        self._last_look_s = now
        try:
            text = await metrics
        except RolloutError:
            return  # the requests themselves say what is wrong
        values: defaultdict[str, float] = defaultdict(float)
        for name, value in _METRIC.findall(text):
            values[name] += float(value)
        totals = {name: values[metric] for name, metric in _TOTALS.items()}
        self._before = self._before or totals
        self.load.totals = {name: total - self._before[name] for name, total in totals.items()}
        news = (values["generation_tokens_total"], float(waiting))
        if news != self._news:
            self._news, self.last_news_s = news, now
        if running := values["num_requests_running"]:
            self.load.add(running, values["num_requests_waiting"], values["kv_cache_usage_perc"])


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def _within(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)
