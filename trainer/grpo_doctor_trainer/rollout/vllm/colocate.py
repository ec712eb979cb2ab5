"""Rollout with a vLLM engine inside each rank, on the same device as the trainer."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks.group import settle
from grpo_doctor_trainer.rollout.vllm.ending import end_engine
from grpo_doctor_trainer.rollout.vllm.enginelog import console_to_file, explained, log_to_file
from grpo_doctor_trainer.rollout.vllm.folder import engine_folder, model_source
from grpo_doctor_trainer.rollout.vllm.groups import EngineGroup, seeded
from grpo_doctor_trainer.rollout.vllm.leftovers import remove_for_rank
from grpo_doctor_trainer.rollout.vllm.loading import WeightLoader
from grpo_doctor_trainer.rollout.vllm.options import engine_options, longest_sequence
from grpo_doctor_trainer.rollout.vllm.patience import Patience
from grpo_doctor_trainer.rollout.vllm.requests import (
    Sampled,
    as_completions,
    as_requests,
    check_length,
    check_read,
    read_output,
    sampling_options,
)
from grpo_doctor_trainer.rollout.vllm.starting import cache_bytes, require_vllm, watch_steps
from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout.interface import Completions


class ColocatedRollout:
    """A vLLM engine in this process, or in those of `--vllm_tensor_parallel_size` ranks.

    Raises:
        RolloutError: vLLM is not installed, or the engine cannot start.
    """

    shares_weights = False

    def __init__(
        self, engine: Engine, loaded: LoadedModel, config: TrainerConfig, ranks: Ranks
    ) -> None:
        self._config = config
        self._device = engine.device
        self._loaded = loaded
        self._longest = longest_sequence(config, loaded.context)
        self._rank = ranks.rank
        self._syncs = 0
        self._stale, self._asleep = True, False
        self._lora: Any = None
        self._statistics = EngineStatistics()
        self.log: Path = engine_folder(config) / f"rank_{ranks.rank:05d}.log"
        self._patience = Patience(config.vllm_timeout, self.log)
        self._group = EngineGroup(config.vllm_tensor_parallel_size, ranks)
        require_vllm(config, engine.device, with_images=loaded.vision is not None)
        if self._group.size > 1 and engine.device.type == "cpu":
            first = ranks.rank - self._group.place
            remove_for_rank(first, self._group.size, self._group.place)
        self._vllm: Any = self._start(model_source(config, loaded, ranks), ranks)
        on_cpu = engine.device.type == "cpu"
        self._weights = WeightLoader(self._vllm, engine, config, repacks=on_cpu)
        watch_steps(engine, self._trained)
        if config.sleep_level:
            self._sleep()

    def sync(self) -> None:
        """Gives the engine the policy's weights, or its adapters; nothing if none has changed.

        Raises:
            RolloutError: the engine did not take them, or not in time.
        """
        if not self._stale:
            return
        if self._asleep:
            self._wake("weights")
        with phase("sync"), self._waiting("loading weights"):
            if self._config.vllm_enable_lora:
                self._syncs += 1
                folder = engine_folder(self._config) / f"adapter_{self._rank:05d}"
                self._lora = self._weights.load_adapters(folder, self._syncs)
            else:
                self._weights.load()
            self._vllm.reset_prefix_cache()
            settle(self._device)
        self._stale = False

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Wakes the engine, with `--sleep_level`, and puts it to sleep at the end."""
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
        """Samples one completion per entry of `prompts`.

        Raises:
            RolloutError: a prompt is too long, or the engine failed or fell silent.
        """
        check_length(prompts, self._config, self._longest)
        with self._waiting("sharing prompts with the other ranks of the engine"):
            requests, own, seed = self._group.share(as_requests(prompts))
        with phase("rollout/generate"), seeded(seed, self._device):
            sampled = self._sample(requests)
        if self._group.place == 0:
            self._statistics.finish(
                [one.prompt_tokens for one in sampled], [len(one.tokens) for one in sampled]
            )
        check_read(prompts, sampled[own])
        pad_token = self._loaded.tokenizer.pad_token_id
        return as_completions(prompts, sampled[own], pad_token, self._device)

    def close(self) -> None:
        """Ends the engine, with those of the other ranks."""
        vllm, self._vllm = self._vllm, None
        if vllm is not None:
            end_engine(vllm)

    def _start(self, model: str, ranks: Ranks) -> Any:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine is this process
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        log_to_file(self.log)
        with console_to_file(self.log) as console:
            patience = Patience(self._config.vllm_timeout, self.log, console)
            doing = "starting"
            with explained(doing, self.log), patience.waiting(doing):
                from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 - takes seconds
                from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415

                options = engine_options(
                    self._config,
                    model=model,
                    context=self._loaded.context,
                    cache_bytes=cache_bytes(self._config, ranks),
                )
                return LLMEngine.from_engine_args(
                    EngineArgs(**options), stat_loggers=[self._statistics]
                )

    def _sample(self, requests: list[dict[str, Any]]) -> list[Sampled]:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        options = sampling_options(self._config, self._loaded)
        done: dict[str, Sampled] = {}
        doing = f"generating completions for {len(requests)} prompts"
        with explained(doing, self.log), self._patience.waiting(doing) as heard:
            for number, request in enumerate(requests):
                # Not one for all: vLLM completes the options per request in place.
                sampling = SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)
                self._vllm.add_request(str(number), request, sampling, lora_request=self._lora)
            while self._vllm.has_unfinished_requests():
                for output in self._vllm.step():
                    if output.finished:
                        done[output.request_id] = read_output(output)
                heard()
        if len(done) != len(requests):
            raise RolloutError(
                f"vLLM answered {len(done)} of {len(requests)} prompts. Its log is {self.log}"
            )
        return [done[str(number)] for number in range(len(requests))]

    @contextmanager
    def _waiting(self, doing: str) -> Iterator[None]:
        with explained(doing, self.log), self._patience.waiting(doing):
            yield

    def _trained(self) -> None:
        self._stale = True

    def _wake(self, what: str) -> None:
        with phase("offload", direction="to_device"), self._waiting(f"waking its {what}"):
            self._vllm.wake_up(tags=[what])
        self._asleep = False

    def _sleep(self) -> None:
        with phase("offload", direction="to_cpu"), self._waiting("putting it to sleep"):
            self._vllm.reset_prefix_cache()
            self._vllm.sleep(level=self._config.sleep_level)
        self._asleep = True
        self._stale |= self._config.sleep_level == 2  # it has dropped its weights
