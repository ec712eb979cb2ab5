"""Rollout with a vLLM server: `--use_vllm true --vllm_mode server`.

Each rank sends its own prompts, and the server decodes those of all ranks together: no rank gathers
for the others, and each one's `rollout` lasts as long as its own completions take. Afterwards the
ranks agree on the outcome (`rollout/agree`); what a rank spends there it waits for slower ones.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from safetensors.torch import save_file

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_vl_model
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, from_main, worst_on_any_rank
from grpo_doctor_trainer.rollout import Completions
from grpo_doctor_trainer.rollout.vllm.client import VllmServer
from grpo_doctor_trainer.rollout.vllm.engine import engine_folder, host_memory
from grpo_doctor_trainer.rollout.vllm.requests import (
    as_bodies,
    as_completions,
    check_length,
    check_read,
    longest_sequence,
)
from grpo_doctor_trainer.rollout.vllm.statistics import write_tokens
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights

_OF_DDP_TIMEOUT = 0.9
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made in it


class ServerRollout:
    """Completions from a server that is given the weights before each rollout."""

    shares_weights = False

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

    def awake(self) -> AbstractContextManager[None]:
        """Do nothing: the server is awake, on devices of its own."""
        return nullcontext()

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
