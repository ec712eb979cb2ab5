"""Rollout with a vLLM engine inside each rank, on the same device as the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, settle
from grpo_doctor_trainer.rollout import Completions, RolloutEngine, seeded
from grpo_doctor_trainer.rollout.vllm.engine import (
    EngineStatistics,
    end_engine,
    engine_folder,
    explained,
    require_vllm,
    start_engine,
)
from grpo_doctor_trainer.rollout.vllm.requests import (
    Completion,
    as_completions,
    as_requests,
    check_length,
    check_read,
    longest_sequence,
    read_output,
    sampling_options,
    sampling_parameters,
)
from grpo_doctor_trainer.rollout.vllm.weights import policy_weights

_SEEDS = 2**31


class ColocatedRollout(RolloutEngine):
    """A vLLM engine in this process."""

    def __init__(
        self, engine: Engine, loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
    ) -> None:
        self._config = config
        self._device = engine.device
        self._loaded = loaded
        self._longest = longest_sequence(config, loaded.context)
        self._asleep = False
        self._statistics = EngineStatistics()
        self.log: Path = engine_folder(config) / f"rank_{ranks.rank:05d}.log"
        require_vllm(config, engine.device, with_images=loaded.vision is not None)
        self._vllm: Any = start_engine(config, loaded, ranks, self.log, self._statistics)
        self._engine = engine
        if config.sleep_level:
            self._sleep()

    def sync(self) -> None:
        """Give the engine the policy's weights."""
        if self._asleep:
            self._wake("weights")
        with phase("sync"), explained("loading weights", self.log):
            if self._device.type == "cpu":
                reload_at_once(self._vllm, self._engine, self._config)
            else:
                load_in_parts(self._vllm, self._engine, self._config)
            self._vllm.reset_prefix_cache()
            # vLLM's reloading clears the workers' images alone: its scheduler would ask for them.
            self._vllm.reset_encoder_cache()
            settle(self._device)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Wake the engine, with `--sleep_level`, and put it to sleep at the end."""
        if not self._config.sleep_level:
            yield
            return
        if self._asleep:  # not, if `sync` woke the weights
            self._wake("weights")
        self._wake("kv_cache")
        try:
            yield
        finally:
            self._sleep()

    def generate(self, prompts: PromptBatch) -> Completions:
        """Sample one completion per entry of `prompts`."""
        check_length(prompts, self._config, self._longest)
        seed = int(torch.randint(_SEEDS, ()))
        with phase("rollout/generate"), seeded(seed, self._device):
            sampled = self._sample(as_requests(prompts))
        self._statistics.finish(sampled)
        check_read(prompts, sampled)
        pad_token = self._loaded.tokenizer.pad_token_id
        return as_completions(prompts, sampled, pad_token, self._device)

    def close(self) -> None:
        """End the engine, with those of the other ranks."""
        vllm, self._vllm = self._vllm, None
        if vllm is not None:
            end_engine(vllm)

    def _sample(self, requests: list[dict[str, Any]]) -> list[Completion]:
        options = sampling_options(self._config, self._loaded)
        answers: dict[str, Completion] = {}
        with explained(f"generating completions for {len(requests)} prompts", self.log):
            for number, request in enumerate(requests):
                # Not one for all: vLLM completes the options per request in place.
                parameters = sampling_parameters(options)
                self._vllm.add_request(str(number), request, parameters)
            while self._vllm.has_unfinished_requests():
                for output in self._vllm.step():
                    if output.finished:
                        answers[output.request_id] = read_output(output)
        if len(answers) != len(requests):
            raise RolloutError(
                f"vLLM answered {len(answers)} of {len(requests)} prompts. Its log is {self.log}"
            )
        return [answers[str(number)] for number in range(len(requests))]

    def _wake(self, part: str) -> None:
        with phase("offload", direction="to_device"), explained(f"waking its {part}", self.log):
            self._vllm.wake_up(tags=[part])
        self._asleep = False

    def _sleep(self) -> None:
        with phase("offload", direction="to_cpu"), explained("putting it to sleep", self.log):
            self._vllm.reset_prefix_cache()
            self._vllm.sleep(level=self._config.sleep_level)
        self._asleep = True


def reload_at_once(vllm: Any, engine: Engine, config: TrainerConfig) -> None:
    """Send all weights by vLLM's reloading: its CPU build packs them afterwards."""
    with phase("sync/gather"):
        # Kept past their part: the engine waits with a layer until it has all of its tensors.
        copies = engine.zero_stage == 3
        pairs = [
            (name, tensor.clone() if copies else tensor)
            for part in policy_weights(engine, config)
            for name, tensor in part
        ]
    with phase("sync/load"):
        vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": pairs})


def load_in_parts(vllm: Any, engine: Engine, config: TrainerConfig) -> None:
    """Send all weights, adapters merged, in `--move_model_batches` parts."""
    parts = policy_weights(engine, config)
    while True:
        with phase("sync/gather"):
            part = next(parts, None)
        if part is None:
            return
        with phase("sync/load"):
            vllm.apply_model(lambda model: model.load_weights(part))  # noqa: B023
