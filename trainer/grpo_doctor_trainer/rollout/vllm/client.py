"""vLLM's own server, as the trainer asks it: `vllm serve` with its RL endpoints.

Completions come from `/inference/v1/generate`, new weights go by `/collective_rpc` between `/pause`
and `/resume`, and `/metrics` shows how the engine is. These endpoints are there with
`VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from msgspec import Struct

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.sampling import Completion
from grpo_doctor_trainer.rollout.vllm.statistics import EngineSnapshot, Tally, write_load

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from grpo_doctor_trainer.rollout import OnEnded
    from grpo_doctor_trainer.rollout.vllm.statistics import RolloutStatistics

_SHORT_S = 10.0
_RETRY_S = 0.5
_REMIND_S = 15.0
_LOOK_S = 0.1
_FEWEST_LOOKS = 3  # peaks and means of fewer samples say nothing
_METRIC = re.compile(r"^vllm:(\w+)(?:\{[^\n]*\})? (\S+)$", re.MULTILINE)
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


class VllmServer:
    """One server.

    Args:
        address: where it listens, as `http://host:port`.
        command: starts such a server; messages show it.
        patience_s: seconds without a new token until it is an error.
    """

    def __init__(self, address: str, command: str, patience_s: float) -> None:
        self.address, self.command, self._patience_s = address, command, patience_s

    def wait_until_ready(self, seconds: float, report: Callable[[str], None]) -> dict[str, Any]:
        """Waits for the server to come up, and has it make its first tokens.

        Args:
            seconds: until it is an error.
            report: is given a line now and then while it waits.

        Returns:
            its settings, as vLLM's `ModelConfig` names them.

        Raises:
            RolloutError: it is not there in time, or was started without what is needed.
        """
        return asyncio.run(self._wait_until_ready(seconds, report))

    def load(self, folder: str, version: str) -> None:
        """Has the server load all weights from a folder.

        Args:
            folder: has safetensors files that the server can read.
            version: marks the completions that are made with these weights.

        Raises:
            RolloutError: it did not load them.
        """
        asyncio.run(self._load(folder, version))

    def generate(
        self, requests: Sequence[dict[str, Any]], version: str, on_ended: OnEnded | None = None
    ) -> tuple[list[Completion], RolloutStatistics | None]:
        """Has prompts completed.

        Args:
            requests: one body per prompt; the completions of each follow those of the one before.
            version: of the weights that the completions must come from.
            on_ended: is given the completions of a prompt when the last of them has ended.

        Returns:
            the completions, and what the engine did meanwhile; none where that was too short.

        Raises:
            RolloutError: the server refused, failed, died, fell silent or has other weights.
        """
        return asyncio.run(self._generate(requests, version, on_ended))

    async def _wait_until_ready(
        self, seconds: float, report: Callable[[str], None]
    ) -> dict[str, Any]:
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

    async def _load(self, folder: str, version: str) -> None:
        reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        async with _session() as session:
            # A pause clears the caches too, which were computed with the old weights.
            await self._ask(session, "POST", "/pause?mode=wait", {}, self._patience_s)
            await self._ask(session, "POST", "/collective_rpc", reload, self._patience_s)
            await self._ask(session, "POST", "/update_weight_version", {"new_version": version})
            await self._ask(session, "POST", "/resume", {})

    async def _generate(
        self, requests: Sequence[dict[str, Any]], version: str, on_ended: OnEnded | None
    ) -> tuple[list[Completion], RolloutStatistics | None]:
        completions: dict[int, Completion] = {}
        asked: dict[asyncio.Task[list[Completion]], int] = {}
        total = 0
        async with _session() as session:
            for request in requests:
                task = asyncio.create_task(self._complete(session, request, version))
                asked[task] = total
                total += request["sampling_params"]["n"]
            watch = _Watch(self._patience_s)
            try:
                while asked:
                    waiting = asyncio.wait(asked, timeout=_LOOK_S, return_when="FIRST_COMPLETED")
                    done, _ = await waiting
                    ended = {
                        number: completion
                        for task in done
                        for number, completion in enumerate(task.result(), asked.pop(task))
                    }
                    completions |= ended
                    if on_ended is not None:
                        on_ended({number: each.tokens for number, each in ended.items()})
                    await watch.look(self._ask(session, "GET", "/metrics"), len(completions))
                    if watch.silent:
                        raise self._failure(
                            f"has made no token for {self._patience_s:g} s (--vllm_timeout)"
                        )
            finally:
                for task in asked:
                    task.cancel()
                await asyncio.gather(*asked, return_exceptions=True)
        return [completions[number] for number in range(total)], watch.statistics()

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

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._last_look_s = self._last_news_s = time.monotonic()
        self._news: tuple[float, ...] = ()
        self._first: EngineSnapshot | None = None
        self._last = EngineSnapshot()
        self._tally = Tally()

    @property
    def silent(self) -> bool:
        return time.monotonic() - self._last_news_s > self._patience_s

    async def look(self, metrics: Coroutine[Any, Any, str], completions: int) -> None:
        """Reads `/metrics` if it is time to; `completions` have come by now."""
        now = time.monotonic()
        if now - self._last_look_s < _LOOK_S / 2 and self._first is not None:
            metrics.close()
            return
        self._last_look_s = now
        try:
            text = await metrics
        except RolloutError:
            return  # the requests themselves say what is wrong
        values: dict[str, float] = {}
        for name, value in _METRIC.findall(text):
            values[name] = values.get(name, 0.0) + float(value)
        news = (values.get("generation_tokens_total", 0.0), float(completions))
        if news != self._news:
            self._news, self._last_news_s = news, now
        self._last = EngineSnapshot(
            running=int(values.get("num_requests_running", 0)),
            waiting=int(values.get("num_requests_waiting", 0)),
            kv_cache=values.get("kv_cache_usage_perc", 0.0),
            preemptions=int(values.get("num_preemptions_total", 0)),
            prefix_queries=int(values.get("prefix_cache_queries_total", 0)),
            prefix_hits=int(values.get("prefix_cache_hits_total", 0)),
            steps=int(values.get("iteration_tokens_total_count", 0)),
        )
        if self._first is None:
            self._first = self._last
            self._tally = Tally(self._first)
        if self._last.running:
            self._tally.add(self._last)
            write_load(self._last)

    def statistics(self) -> RolloutStatistics | None:
        """What the engine did; none of too few samples."""
        if self._tally.samples < _FEWEST_LOOKS:
            return None
        return self._tally.statistics(self._last)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def _within(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds)
