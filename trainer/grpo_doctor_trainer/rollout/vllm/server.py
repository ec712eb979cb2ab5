"""Rollout with a vLLM server: `--use_vllm true --vllm_mode server`.

Each rank sends its own prompts, and the server decodes those of all ranks together: no rank gathers
for the others, and each one's `rollout` lasts as long as its own completions take. Afterwards the
ranks agree on the outcome (`rollout/agree`); what a rank spends there it waits for slower ones.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors.torch import save_file
from torch import distributed as dist

from grpo_doctor_probes.hooks.engine_load import EngineLoad
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_vl_model
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, gather_rows, worst_on_any_rank
from grpo_doctor_trainer.rollout import Completions
from grpo_doctor_trainer.rollout.vllm.client import VllmServer
from grpo_doctor_trainer.rollout.vllm.engine import engine_folder, host_memory
from grpo_doctor_trainer.rollout.vllm.requests import (
    Completion,
    as_bodies,
    as_completions,
    check_length,
    check_read,
    longest_sequence,
)
from grpo_doctor_trainer.rollout.vllm.statistics import write_tokens
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights

_T = TypeVar("_T")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it
# Ranks that are done wait for the others in a collective: the server's silence has to be noticed
# before that one gives up, to be what is reported.
_OF_DDP_TIMEOUT = 0.9


class ServerRollout:
    """Completions from a server that is given the weights before each rollout."""

    shares_weights = False

    def __init__(
        self, engine: Engine, loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
    ) -> None:
        self._engine, self._loaded, self._config, self._ranks = engine, loaded, config, ranks
        self._longest = longest_sequence(config, loaded.context)
        patience = config.vllm_timeout
        if ranks.world_size > 1:
            patience = min(patience, _OF_DDP_TIMEOUT * config.ddp_timeout)
        address = f"http://{config.vllm_server_host}:{config.vllm_server_port}"
        command = start_command(config, engine.device, self._longest)
        self._server = VllmServer(address, command, patience)
        self._folder: Path | None = None
        self._syncs = 0
        # Tells this run's weights from another's, should two use one server.
        own = torch.tensor([[random.SystemRandom().getrandbits(62)]])
        self._run = f"{int(gather_rows(own, ranks)[0]):016x}"
        self._together(self._reach, "init/agree")

    def sync(self) -> None:
        """Send the weights, from rank 0; under ZeRO-3 all ranks gather them."""
        self._syncs += 1
        with phase("sync"):
            self._together(self._send_weights, "sync/agree")

    def awake(self) -> AbstractContextManager[None]:
        """Do nothing: the server is awake, on devices of its own."""
        return nullcontext()

    def generate(self, prompts: PromptBatch) -> Completions:
        """Have this rank's prompts completed."""
        completions, load = self._together(lambda: self._generate(prompts), "rollout/agree")
        write_tokens(completions)
        if self._ranks.is_main and load is not None:
            load.finish()
        pad_token = self._loaded.tokenizer.pad_token_id
        return as_completions(prompts, completions, pad_token, self._engine.device)

    def close(self) -> None:
        """Remove the folder of weights."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _version(self) -> str:
        return f"{self._run}-{self._syncs}"

    def _reach(self) -> None:
        config, main = self._config, self._ranks.is_main
        if main and config.embedded:
            write_embedded(config, self._loaded)
        model = self._server.wait_until_ready(
            config.vllm_server_timeout, LOG.info if main else lambda _: None
        )
        if model["max_model_len"] < self._longest:
            raise RolloutError(
                f"the vLLM server at {self._server.address} takes {model['max_model_len']} tokens "
                f"at most, and --max_length and --max_completion_length need {self._longest}. "
                f"Start it with --max-model-len {self._longest}, or lower them"
            )
        if main:
            LOG.info("vLLM server %s serves %s", self._server.address, model["model"])
            if (dtype := str(model["dtype"]).removeprefix("torch.")) != config.torch_dtype:
                LOG.warning(
                    "the server computes in %s and the trainer in %s: log-probs will differ. Start "
                    "it with --dtype %s", dtype, config.torch_dtype, config.torch_dtype,
                )  # fmt: skip

    def _send_weights(self) -> None:
        main, failed = self._ranks.is_main, None
        if not main and self._engine.zero_stage != 3:
            return
        parts = enumerate(policy_weights(self._engine, self._config))
        while True:
            with phase("sync/gather"):
                number, part = next(parts, (-1, []))
            if number < 0:
                break
            # Gathering is a collective: after an error of its own rank 0 takes part to the end.
            if main and failed is None:
                failed = self._leave(number, part)
        if failed is not None:
            raise RolloutError(failed)
        if main:
            with phase("sync/load"):
                self._server.load(str(self._folder), self._version)

    def _leave(self, number: int, part: list[tuple[str, torch.Tensor]]) -> str | None:
        """Write a part of the weights for the server, over that of the last sync."""
        try:
            with phase("sync/send"):
                if self._folder is None:
                    self._folder = weights_folder(self._config, self._engine.module)
                save_file(_apart(part), self._folder / f"part-{number:05d}.safetensors")
        except RolloutError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - safetensors has errors of its own
            return (
                f"the weights for the vLLM server could not be written to {self._folder}: {error}. "
                "Give a folder with room that both see: --vllm_weights_dir"
            )
        return None

    def _generate(self, prompts: PromptBatch) -> tuple[list[Completion], EngineLoad | None]:
        check_length(prompts, self._config, self._longest)
        # On a GPU the order in which ranks' requests arrive changes the last digits, and with them
        # now and then a token: seeds could not make a run repeatable, and cost time there.
        seed = int(torch.randint(2**31, ())) if self._engine.device.type == "cpu" else None
        bodies = as_bodies(prompts, self._config, self._loaded, seed)
        with phase("rollout/generate"):
            completions, load = self._server.generate(bodies, self._version)
        check_read(prompts, completions)
        return completions, load

    def _together(self, function: Callable[[], _T], agreeing: str) -> _T:
        """Run a function on every rank; what fails on one is raised on all."""
        value, message = None, None
        try:
            value = function()
        except RolloutError as error:
            message = str(error)
        with phase(agreeing):
            raise_together(message, self._ranks)
        return cast("_T", value)


def raise_together(message: str | None, ranks: Ranks) -> None:
    """Raise this rank's error, or that of the first rank that has one. A collective.

    Takes a message and not an exception: one that is kept in a variable holds on to all callers'
    variables, and with them to the workers of the data loader, which then outlive the run.
    """
    if ranks.world_size > 1 and worst_on_any_rank(message is not None, ranks):
        messages: list[str | None] = [None] * ranks.world_size
        dist.all_gather_object(messages, message)
        message = message or next(filter(None, messages))
    if message is not None:
        raise RolloutError(message)


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


def weights_folder(config: TrainerConfig, model: Any) -> Path:
    """Make a private folder with room for all weights of a model.

    A run that was killed leaves its folder, which the next one with the same port takes over.
    """
    size = sum(w.element_size() * getattr(w, "ds_numel", w.numel()) for w in model.parameters())
    given = config.vllm_weights_dir
    parents = [Path(given)] if given else [_SHARED_MEMORY, engine_folder(config)]
    name = f"grpo-doctor-weights-{os.getuid()}-{config.vllm_server_port}"
    for parent in parents:
        with suppress(OSError):
            parent.mkdir(parents=True, exist_ok=True)
            folder = parent.resolve() / name
            shutil.rmtree(folder, ignore_errors=True)
            if shutil.disk_usage(parent).free > size * 1.05:
                folder.mkdir(mode=0o700)
                return folder
    raise RolloutError(
        f"no folder has room for {size:,} bytes of weights for the vLLM server "
        f"({', '.join(map(str, parents))}). Give one that both see: --vllm_weights_dir"
    )


def _embedded_folder(config: TrainerConfig) -> Path:
    return engine_folder(config) / "served"


def write_embedded(config: TrainerConfig, loaded: LoadedModel) -> None:
    """Write an embedded model for the server to start with; its weights come with each sync."""
    make = tiny_model if loaded.processor is None else tiny_vl_model
    make(loaded.tokenizer, config.embedded_width).save_pretrained(_embedded_folder(config))
    loaded.saved_with_weights.save_pretrained(_embedded_folder(config))


def _apart(part: list[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the tensors on the CPU, each with memory of its own, as safetensors wants them."""
    storages: set[int] = set()
    tensors = {}
    for name, tensor in part:
        copy = tensor.detach().to("cpu").contiguous()
        storage = copy.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != copy.nbytes:
            copy = copy.clone()  # tied to one before, or a slice of something larger
        storages.add(copy.untyped_storage().data_ptr())
        tensors[name] = copy
    return tensors
