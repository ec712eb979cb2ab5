"""The options of the rollout server, `python -m grpo_doctor_trainer.serve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_trainer.config.option import Options, option


@dataclass(frozen=True)
class WhereOptions(Options, heading="where"):
    """Address and folders."""

    host: str = option(
        "127.0.0.1",
        "address to listen on",
        alias="vllm_server_host",
        default_text="default 127.0.0.1: this machine only",
    )
    port: int = option(
        8000, "HTTP port", ge=0, le=65535, reason="0 takes any free one", alias="vllm_server_port"
    )
    output_dir: str = option("grpo-doctor-out/serve", "folder of the log")
    weights_dir: str | None = option(
        None,
        "folder through which the trainer hands over weights where there is no NCCL; for a "
        "trainer on another machine, one that both see",
        default_text="default /dev/shm, then --output_dir",
    )


@dataclass(frozen=True)
class EngineOptions(Options, heading="engine"):
    """The model, and how vLLM runs it."""

    model: str | None = option(
        None,
        "the trainer's --model, embedded-vl too",
        default_text="default none: the embedded tiny model",
    )
    torch_dtype: str = option(
        "auto",
        "dtype of the weights, best the trainer's",
        choices=("auto", "float32", "bfloat16", "float16"),
        # As in the trainer: the log-probs of the tiny model are compared closely.
        embedded="float32",
        default_text="default auto: the model's own",
    )
    tensor_parallel_size: int = option(
        1, "devices that share the weights", ge=1, alias="vllm_tensor_parallel_size"
    )
    gpu_memory_utilization: float = option(
        0.9,
        "share of each device's memory for weights and KV cache; without a GPU, share of the "
        "host's memory for the KV cache",
        gt=0,
        le=1,
        embedded=0.02,
        alias="vllm_gpu_memory_utilization",
    )
    max_model_len: int | None = option(
        None,
        "longest prompt and completion together",
        ge=1,
        alias="vllm_max_model_len",
        default_text="default: the model's own limit",
    )
    max_num_seqs: int | None = option(
        None,
        "sequences decoded at once",
        ge=1,
        alias="vllm_max_num_seqs",
        default_text="default: vLLM's",
    )
    enforce_eager: bool = option(
        False, "no CUDA graphs: starts sooner, decodes more slowly", alias="vllm_enforce_eager"
    )
    enable_prefix_caching: bool = option(
        True, "compute the shared start of prompts once", alias="vllm_enable_prefix_caching"
    )


# dataclass takes fields from the last base first, and `--help` shows them in that order.
@dataclass(frozen=True)
class ServeConfig(EngineOptions, WhereOptions):
    """The resolved options of one server.

    What the trainer calls `--vllm_something` can be spelled that way here too.
    """

    @property
    def address(self) -> str:
        """Where it listens, as an address for HTTP."""
        return f"http://{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        """Where everything that vLLM prints goes."""
        return Path(self.output_dir).resolve() / f"serve-{self.port}.log"
