"""Rollout with a vLLM server: `--use_vllm true --vllm_mode server`.

The server is vLLM's own, `vllm serve` with its RL endpoints. Completions come from
`/inference/v1/generate`, new weights go by `/collective_rpc` between `/pause` and `/resume`. These
endpoints are there with `VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`. `grpo-doctor run` has
what the engine does from the server's `/metrics`.

Each rank sends its own prompts, and the server decodes those of all ranks together: no rank gathers
for the others, and each one's `rollout` lasts as long as its own completions take. Afterwards the
ranks agree on the outcome (`rollout/agree`); what a rank spends there it waits for slower ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_vl_model
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, from_main, worst_on_any_rank
from grpo_doctor_trainer.rollout import Completions, RolloutEngine
from grpo_doctor_trainer.rollout.vllm.engine import engine_folder, host_memory, write_tokens
from grpo_doctor_trainer.rollout.vllm.requests import (
    Completion,
    as_bodies,
    as_completions,
    check_length,
    check_read,
    longest_sequence,
)
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights

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
        with contextlib.suppress(RolloutError):
            await self._ask(session, "GET", "/health")
            return True
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


_OF_DDP_TIMEOUT = 0.9
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it


class ServerRollout(RolloutEngine):
    """Completions from a server that is given the weights before each rollout."""

    def __init__(
        self, engine: Engine, loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
    ) -> None:
        self._engine, self._loaded, self._config, self._ranks = engine, loaded, config, ranks
        self._longest = longest_sequence(config, loaded.context)
        address = f"http://{config.vllm_server_host}:{config.vllm_server_port}"
        command = start_command(config, engine.device, self._longest)
        # Ranks that are done wait for the others in a collective: the server's silence has to be
        # noticed before that one gives up, to be what is reported.
        patience = min(config.vllm_timeout, _OF_DDP_TIMEOUT * config.ddp_timeout)
        self._server = VllmServer(address, command, patience)
        self._folder: Path | None = None
        self._syncs = 0
        # Tells this run's weights from another's, should two use one server.
        self._run = from_main(secrets.token_hex(8), ranks)
        if ranks.is_main:
            self._reach()
        with phase("init/agree"):
            wait_for_all(ranks)

    def sync(self) -> None:
        """Send the weights, from rank 0; under ZeRO-3 all ranks gather them."""
        self._syncs += 1
        with phase("sync"):
            if self._ranks.is_main or self._engine.zero_stage == 3:
                self._send_weights()
            with phase("sync/agree"):
                wait_for_all(self._ranks)

    def generate(self, prompts: PromptBatch) -> Completions:
        """Have this rank's prompts completed."""
        check_length(prompts, self._config, self._longest)
        # On a GPU the order in which ranks' requests arrive changes the last digits, and with them
        # now and then a token: seeds could not make a run repeatable, and cost time there.
        seed = int(torch.randint(2**31, ())) if self._engine.device.type == "cpu" else None
        bodies = as_bodies(prompts, self._config, self._loaded, seed)
        with phase("rollout/generate"):
            completions = self._server.generate(bodies, self._version)
        check_read(prompts, completions)
        write_tokens(completions)
        with phase("rollout/agree"):
            wait_for_all(self._ranks)
        pad_token = self._loaded.tokenizer.pad_token_id
        return as_completions(prompts, completions, pad_token, self._engine.device)

    def close(self) -> None:
        """Remove the folder of weights."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _version(self) -> str:
        return f"{self._run}-{self._syncs}"

    def _reach(self) -> None:
        config = self._config
        if config.embedded:
            write_embedded(config, self._loaded)
        model = self._server.wait_until_ready(config.vllm_server_timeout, LOG.info)
        if model["max_model_len"] < self._longest:
            raise RolloutError(
                f"the vLLM server at {self._server.address} takes {model['max_model_len']} tokens "
                f"at most, and --max_length and --max_completion_length need {self._longest}. "
                f"Start it with --max-model-len {self._longest}, or lower them"
            )
        LOG.info("vLLM server %s serves %s", self._server.address, model["model"])
        if (dtype := str(model["dtype"]).removeprefix("torch.")) != config.torch_dtype:
            LOG.warning(
                "the server computes in %s and the trainer in %s: log-probs will differ. Start "
                "it with --dtype %s", dtype, config.torch_dtype, config.torch_dtype,
            )  # fmt: skip

    def _send_weights(self) -> None:
        parts = enumerate(policy_weights(self._engine, self._config))
        while True:
            with phase("sync/gather"):
                number, part = next(parts, (-1, []))
            if number < 0:
                break
            if self._ranks.is_main:
                with phase("sync/send"):
                    self._leave(number, part)
        if self._ranks.is_main:
            with phase("sync/load"):
                self._server.load(str(self._folder), self._version)

    def _leave(self, number: int, part: list[tuple[str, torch.Tensor]]) -> None:
        """Write a part of the weights for the server, over that of the last sync."""
        # Tied weights share memory, which safetensors does not write: each gets its own.
        own = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in part}
        try:
            self._folder = self._folder or make_weights_folder(self._config)
            save_file(own, self._folder / f"part-{number:05d}.safetensors")
        except Exception as error:
            raise RolloutError(
                f"the weights for the vLLM server could not be written ({error}). Give a folder "
                "with room that both see: --vllm_weights_dir"
            ) from error


def wait_for_all(ranks: Ranks) -> None:
    """Wait until every rank is here. One that fails before has said why, and ends the job."""
    worst_on_any_rank(False, ranks)


def start_command(config: TrainerConfig, device: torch.device, longest: int) -> str:
    """Spell the command that starts a server for this run."""
    model = str(_embedded_folder(config) if config.embedded else config.model)
    # The CPU build has no `vllm` command, and would take most of the host's memory.
    cpu = device.type == "cpu"
    size = int(host_memory() * config.vllm_gpu_memory_utilization)
    start = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model"]
    words = [
        *(start if cpu else ["vllm", "serve"]), model,
        "--host", config.vllm_server_host, "--port", str(config.vllm_server_port),
        "--enable-scale-out", "--generation-config", "vllm",
        "--logprobs-mode", "processed_logprobs",
        "--dtype", config.torch_dtype, "--max-model-len", str(longest),
        *(["--enforce-eager", "--kv-cache-memory-bytes", str(size)] if cpu else []),
    ]  # fmt: skip
    return f"VLLM_SERVER_DEV_MODE=1 {shlex.join(words)}"


def make_weights_folder(config: TrainerConfig) -> Path:
    """Make the private folder through which the server gets the weights.

    A run that was killed leaves its folder, which the next one with the same port replaces.
    """
    parent = Path(config.vllm_weights_dir or _SHARED_MEMORY).resolve()
    folder = parent / f"grpo-doctor-weights-{os.getuid()}-{config.vllm_server_port}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder


def _embedded_folder(config: TrainerConfig) -> Path:
    return engine_folder(config) / "served"


def write_embedded(config: TrainerConfig, loaded: LoadedModel) -> None:
    """Write an embedded model for the server to start with; its weights come with each sync."""
    make = tiny_model if loaded.processor is None else tiny_vl_model
    make(loaded.tokenizer, config.embedded_width).save_pretrained(_embedded_folder(config))
    loaded.saved_with_weights.save_pretrained(_embedded_folder(config))
