"""Rollout with a vLLM server: `--use_vllm true --vllm_mode server`.

Each rank sends its own prompts, and the server decodes those of all ranks together: no rank gathers
for the others, and each one's `rollout` lasts as long as its own completions take. Afterwards the
ranks agree on the outcome (`rollout/agree`); what a rank spends there it waits for slower ones.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import distributed as dist

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks.group import gather_rows, worst_on_any_rank
from grpo_doctor_trainer.rollout.vllm.client import ServerClient
from grpo_doctor_trainer.rollout.vllm.requests import (
    as_completions,
    as_prompts,
    check_length,
    check_read,
    longest_sequence,
)
from grpo_doctor_trainer.rollout.vllm.sampling import sampling_of
from grpo_doctor_trainer.rollout.vllm.statistics import write_load, write_totals
from grpo_doctor_trainer.rollout.vllm.transfer import make_transfer
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights
from grpo_doctor_trainer.serve.protocol import GenerateRequest
from grpo_doctor_trainer.serve.state import model_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout import Completions, OnEnded
    from grpo_doctor_trainer.rollout.vllm.transfer import WeightTransfer
    from grpo_doctor_trainer.rollout.vllm.weight_checks import Part
    from grpo_doctor_trainer.serve.protocol import Generated
    from grpo_doctor_trainer.serve.state import Health

_T = TypeVar("_T")
# Ranks that are done wait for the others in a collective: the server's silence has to be noticed
# before that one gives up, to be what is reported.
_OF_DDP_TIMEOUT = 0.9


class ServerRollout:
    """Completions from a server that is given the weights before each rollout.

    Raises:
        RolloutError: the server is not there in time, or does not fit the model.
    """

    shares_weights = False

    def __init__(
        self, engine: Engine, loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
    ) -> None:
        self._engine, self._loaded, self._config, self._ranks = engine, loaded, config, ranks
        patience = config.vllm_timeout
        if ranks.world_size > 1:
            patience = min(patience, _OF_DDP_TIMEOUT * config.ddp_timeout)
        self._client = ServerClient(config.vllm_server_host, config.vllm_server_port, patience)
        self._sampling = sampling_of(config, loaded)
        self._transfer: WeightTransfer | None = None
        self._syncs = 0
        # Tells this run's weights from another's, should two use one server.
        own = torch.tensor([[random.SystemRandom().getrandbits(62)]])
        self._run = f"{int(gather_rows(own, ranks)[0]):016x}"
        health = self._together(self._reach, "init/agree")
        self._seeded = health.device == "cpu"
        self._longest = health.max_model_len
        if ranks.is_main:
            self._introduce(health)

    def sync(self) -> None:
        """Sends the weights, from rank 0; under ZeRO-3 all ranks gather them."""
        self._syncs += 1
        with phase("sync"):
            self._together(self._send_weights, "sync/agree")

    def awake(self) -> AbstractContextManager[None]:
        """Does nothing: the server is awake, on devices of its own."""
        return nullcontext()

    def generate(self, prompts: PromptBatch, on_ended: OnEnded | None = None) -> Completions:
        """Has this rank's prompts completed."""
        generated = self._together(lambda: self._generate(prompts, on_ended), "rollout/agree")
        write_totals(generated.statistics, generated.completions, whole_engine=self._ranks.is_main)
        pad_token = self._loaded.tokenizer.pad_token_id
        return as_completions(prompts, generated.completions, pad_token, self._engine.device)

    def close(self) -> None:
        """Leaves nothing of this run with the server."""
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.close()

    @property
    def _version(self) -> str:
        return f"{self._run}-{self._syncs}"

    def _reach(self) -> Health:
        main, timeout_s = self._ranks.is_main, self._config.vllm_server_timeout
        health = self._client.wait_until_ready(timeout_s, LOG.info if main else lambda _: None)
        self._check(health)
        if main:
            config = self._config
            self._transfer = make_transfer(
                self._client, health, self._engine.device, config.vllm_timeout,
                overlapped=config.overlap_sync and (config.move_model_batches or 1) > 1,
            )  # fmt: skip
        return health

    def _check(self, health: Health) -> None:
        address = self._client.address
        own = model_shape(self._engine.module.config)
        if own != health.shape:
            differing = ", ".join(
                f"{name} {own.get(name)} here and {health.shape.get(name)} there"
                for name in sorted(own.keys() | health.shape.keys())
                if own.get(name) != health.shape.get(name)
            )
            raise RolloutError(
                f"the vLLM server at {address} serves another model "
                f"({health.model or 'the embedded one'}): {differing}. Start it with the "
                f"trainer's --model. Its log: {health.log}"
            )
        needed = longest_sequence(self._config, self._loaded.context)
        if health.max_model_len < needed:
            raise RolloutError(
                f"the vLLM server at {address} takes {health.max_model_len} tokens at most, and "
                f"--max_length and --max_completion_length need {needed}. Start it with "
                f"--max_model_len {needed}, or lower them. Its log: {health.log}"
            )

    def _introduce(self, health: Health) -> None:
        transfer = "" if self._transfer is None else self._transfer.describe()
        LOG.info(
            "vLLM server %s: vLLM %s on %s, weights by %s, log %s",
            self._client.address, health.vllm, health.device, transfer, health.log,
        )  # fmt: skip
        if health.dtype != self._config.torch_dtype:
            LOG.warning(
                "the server computes in %s and the trainer in %s: log-probs will differ. Start it "
                "with --torch_dtype %s",
                health.dtype, self._config.torch_dtype, self._config.torch_dtype,
            )  # fmt: skip

    def _send_weights(self) -> None:
        transfer, failed = self._transfer, None
        if transfer is None and self._engine.zero_stage != 3:
            return
        parts = policy_weights(self._engine, self._config)
        if transfer is not None:
            transfer.begin(self._version)
        while True:
            with phase("sync/gather"):
                part = next(parts, None)
            if part is None:
                break
            # Gathering is a collective: after an error of its own rank 0 takes part to the end.
            if transfer is not None and failed is None:
                failed = _attempt(transfer, part)
        if failed is not None:
            raise RolloutError(failed)
        if transfer is not None:
            transfer.finish()

    def _generate(self, prompts: PromptBatch, on_ended: OnEnded | None) -> Generated:
        check_length(prompts, self._config, self._longest)
        # On a GPU the order in which ranks' requests arrive changes the last digits, and with them
        # now and then a token: seeds could not make a run repeatable, and cost time there.
        seed = int(torch.randint(2**31, ())) if self._seeded else None
        request = GenerateRequest(
            weights=self._version,
            prompts=as_prompts(prompts),
            sampling=self._sampling,
            seed=seed,
            tell_ended=on_ended is not None,
        )
        with phase("rollout/generate"):
            generated = self._client.generate(request, write_load, on_ended)
        check_read(prompts, generated.completions)
        return generated

    def _together(self, function: Callable[[], _T], agreeing: str) -> _T:
        """Runs a function on every rank; what fails on one is raised on all."""
        value, message = None, None
        try:
            value = function()
        except RolloutError as error:
            message = str(error)
        with phase(agreeing):
            raise_together(message, self._ranks)
        return cast("_T", value)


def _attempt(transfer: WeightTransfer, part: Part) -> str | None:
    try:
        with phase("sync/send"):
            transfer.add(part)
    except RolloutError as error:
        transfer.abandon()
        return str(error)
    return None


def raise_together(message: str | None, ranks: Ranks) -> None:
    """Raises this rank's error, or that of the first rank that has one. A collective.

    Takes a message and not an exception: one that is kept in a variable holds on to all callers'
    variables, and with them to the workers of the data loader, which then outlive the run.

    Args:
        message: what went wrong on this rank, if anything did.
        ranks: this process among the others.

    Raises:
        RolloutError: something went wrong on any rank.
    """
    if ranks.world_size > 1 and worst_on_any_rank(message is not None, ranks):
        messages: list[str | None] = [None] * ranks.world_size
        dist.all_gather_object(messages, message)
        message = message or next(filter(None, messages))
    if message is not None:
        raise RolloutError(message)
