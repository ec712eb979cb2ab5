"""vLLM's own output: to a file per rank, and one message when something fails."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s:%(lineno)d %(message)s"
# What vLLM 0.10 to 0.32 say, in lower case, and what to do about it. The first match counts.
_ADVICE = (
    (
        ("less than desired", "less than requested memory"),  # of a GPU, of a host
        (
            "the memory is taken already: lower --vllm_gpu_memory_utilization, or make room "
            "with --offload_optimizer, --deepspeed zero3 or a smaller --per_device_train_batch_size"
        ),
    ),
    (
        ("shmmanager",),  # the CPU build names its memory by the ranks alone
        (
            "one tensor-parallel engine per machine: end the other one, which holds "
            "/dev/shm/-tp:*-cpushm_*"
        ),
    ),
    (
        ("kv cache", "cache blocks"),
        (
            "raise --vllm_gpu_memory_utilization, or lower --vllm_max_model_len or "
            "--max_completion_length"
        ),
    ),
    (
        ("out of memory", "can't allocate memory", "cannot allocate memory"),
        (
            "lower --vllm_gpu_memory_utilization or --vllm_max_num_seqs, raise "
            "--vllm_tensor_parallel_size, or use --sleep_level 1 with --offload_model"
        ),
    ),
    (("max_model_len", "max_position_embeddings"), "lower --vllm_max_model_len"),
    (
        ("divisible by tensor parallel", "tensor parallel size", "tensor_parallel_size"),
        "choose another --vllm_tensor_parallel_size",
    ),
    (("lora rank", "max_lora_rank"), "raise --vllm_max_lora_rank"),
    (
        ("torchvision",),
        (
            "install torchvision beside this torch (its CPU wheels are on PyTorch's own index), or "
            "use --use_vllm false for image prompts"
        ),
    ),
    (("lora",), "leave --vllm_enable_lora out, so that adapters are merged into the weights"),
    (
        ("not supported for now", "no model architectures", "are not supported"),
        "this vLLM cannot run the model: upgrade vllm, or use --use_vllm false",
    ),
)


def log_to_file(path: Path) -> None:
    """Sends vLLM's log to `path`; call it before vllm is imported."""
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
def console_to_file(path: Path) -> Iterator[int]:
    """Sends stdout and stderr there too, what C++ writes included; gives the real stderr.

    The descriptors themselves are moved, because vLLM's workers and compilers write to them
    directly.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    copies = os.dup(1), os.dup(2)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield copies[1]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, copy in zip((1, 2), copies, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(target)


@contextmanager
def explained(doing: str, log: Path) -> Iterator[None]:
    """Turns whatever vLLM raises into one message; the traceback goes to the log.

    Raises:
        RolloutError: names what failed, the reason, the log and the flag to change.
    """
    try:
        yield
    except RolloutError:
        raise
    except Exception as error:
        with log.open("a") as file:
            file.write(traceback.format_exc())
        raise RolloutError(failure_message(doing, error, log)) from error


def failure_message(doing: str, error: BaseException, log: Path) -> str:
    """Words one failure of vLLM.

    Args:
        doing: what failed, such as "starting".
        error: what vLLM raised.
        log: its log file.
    """
    reason = _reason(error)
    words = f"{type(error).__name__} {error}".lower()
    advice = [text for signs, text in _ADVICE if any(sign in words for sign in signs)]
    todo = f" To do: {advice[0]}." if advice else ""
    return f"vLLM failed while {doing}: {reason}.{todo} All of it is in {log}"


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if type(error).__module__.startswith("pydantic"):
        # Its first line counts errors, its last one is a link.
        lines = [line for line in lines[1:] if "errors.pydantic.dev" not in line][-1:]
    text = " ".join(lines[:3]).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
