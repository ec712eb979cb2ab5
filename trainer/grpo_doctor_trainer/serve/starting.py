"""Starts vLLM for the server."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.config import EMBEDDED_VL
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.engine_log import explained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config.server import ServeConfig
    from grpo_doctor_trainer.rollout.vllm.statistics import EngineWatch


def start_engine(config: ServeConfig, folder: str, watch: EngineWatch) -> Any:
    """Starts vLLM's `LLMEngine` on a model's folder or name; `watch` gets its statistics.

    Args:
        config: the server's options.
        folder: of the model, or its name.
        watch: gets what the engine reports of each of its steps.

    Raises:
        RolloutError: vLLM is not installed, or could not start with this model.
    """
    try:
        from vllm import EngineArgs  # noqa: PLC0415 - takes ten seconds
        from vllm.platforms import current_platform  # noqa: PLC0415
        from vllm.v1.engine.llm_engine import LLMEngine  # noqa: PLC0415
    except ImportError as error:
        raise RolloutError(
            f"vLLM cannot be imported here ({error}). Install it: pip install 'grpo-doctor[vllm]' "
            "on a machine with a GPU, vLLM's CPU build on others"
        ) from error
    settings: dict[str, Any] = {
        "model": folder,
        "dtype": config.torch_dtype,
        "tensor_parallel_size": config.tensor_parallel_size,
        "max_model_len": config.max_model_len,
        "enable_prefix_caching": config.enable_prefix_caching,
        "generation_config": "vllm",  # the trainer's sampling options, and no others
        "logprobs_mode": "processed_logprobs",  # of what was sampled from
        "worker_extension_cls": "grpo_doctor_trainer.serve.worker.WeightWorker",
        "disable_log_stats": False,
    }
    if config.max_num_seqs is not None:
        settings["max_num_seqs"] = config.max_num_seqs
    if current_platform.is_cpu():
        # There is nothing to capture, and vLLM would take its share of the host's memory less what
        # the process has already: nothing, when the share is small.
        settings["enforce_eager"] = True
        settings["kv_cache_memory_bytes"] = int(config.gpu_memory_utilization * _host_memory())
    else:
        settings["enforce_eager"] = config.enforce_eager
        settings["gpu_memory_utilization"] = config.gpu_memory_utilization
    with explained(f"starting with --model {config.model}", config.log_path):
        return LLMEngine.from_engine_args(EngineArgs(**settings), stat_loggers=[watch])


@contextmanager
def model_folder(config: ServeConfig) -> Iterator[str]:
    """Gives what vLLM can load; an embedded model is written to a folder, for as long as it runs.

    The folder has to stay: vLLM reads the image processor from it with the first image.
    """
    if config.model is not None and config.model != EMBEDDED_VL:
        yield str(Path(config.model).expanduser()) if config.model[0] == "~" else config.model
        return
    with tempfile.TemporaryDirectory(prefix="embedded-", dir=config.log_path.parent) as folder:
        if config.model == EMBEDDED_VL:
            from grpo_doctor_trainer.model import tiny_vl  # noqa: PLC0415

            processor = tiny_vl.tiny_processor()
            processor.save_pretrained(folder)
            tiny_vl.tiny_vl_model(processor.tokenizer).save_pretrained(folder)
        else:
            from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer  # noqa: PLC0415

            tokenizer = tiny_tokenizer()
            tokenizer.save_pretrained(folder)
            tiny_model(tokenizer).save_pretrained(folder)
        yield folder


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
