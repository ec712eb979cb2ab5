"""The server's options: one dataclass, its command line, and checks that need no vLLM."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_trainer.commandline import Parser, boolean
from grpo_doctor_trainer.config import EMBEDDED_VL
from grpo_doctor_trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPES = ("auto", "float32", "bfloat16", "float16")
_DESCRIPTION = """\
One vLLM engine behind HTTP, for the trainer's --use_vllm true --vllm_mode server. It gets new
weights from the trainer before each rollout. Ctrl-C ends it with its engine processes."""
_EXAMPLES = """\
examples:
  the embedded tiny model, on any machine; train with it from another terminal
    python -m grpo_doctor_trainer.serve
    python -m torch.distributed.run --nproc_per_node 2 -m grpo_doctor_trainer \\
      --use_vllm true --vllm_mode server

  a real model on two GPUs of this machine, the trainer on the other six
    CUDA_VISIBLE_DEVICES=0,1 python -m grpo_doctor_trainer.serve \\
      --model Qwen/Qwen2.5-7B-Instruct --tensor_parallel_size 2 --max_model_len 4096
    CUDA_VISIBLE_DEVICES=2,3,4,5,6,7 python -m torch.distributed.run --nproc_per_node 6 \\
      -m grpo_doctor_trainer --model Qwen/Qwen2.5-7B-Instruct --dataset math.jsonl \\
      --use_vllm true --vllm_mode server

  for trainers on other machines (nothing asks for a password: only in a network you trust)
    python -m grpo_doctor_trainer.serve --host 0.0.0.0 --port 8000

exit codes: 1 the engine failed (see its log), 2 a mistake in the launch, 130 Ctrl-C, 143 SIGTERM"""


@dataclass(frozen=True)
class ServeConfig:
    """The resolved options of one server."""

    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool = True
    torch_dtype: str = "auto"
    weights_dir: str | None = None
    output_dir: str = "grpo-doctor-out/serve"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        """Where everything that vLLM prints goes."""
        return Path(self.output_dir).resolve() / f"serve-{self.port}.log"


def parse(arguments: Sequence[str]) -> ServeConfig:
    """Turns a command line into a checked configuration.

    Raises:
        ConfigError: an unknown flag or a value that cannot work.
        SystemExit: after `--help`, with code 0.
    """
    parser = build_parser()
    values = parser.given(arguments, list(ServeConfig.__dataclass_fields__))
    if values.get("model") in {None, EMBEDDED_VL}:
        # As in the trainer: the tiny model needs little, and its log-probs are compared closely.
        values = {"gpu_memory_utilization": 0.02, "torch_dtype": "float32"} | values
    config = ServeConfig(**values)
    _check(config)
    return config


def build_parser() -> Parser:
    """Builds the argument parser; absent flags leave no attribute.

    What the trainer calls `--vllm_something` can be spelled that way here too.
    """
    parser = Parser(prog="grpo_doctor_trainer.serve", description=_DESCRIPTION, epilog=_EXAMPLES)
    where = parser.add_argument_group("where")
    where.add_argument(
        "--host", "--vllm_server_host", metavar="TEXT",
        help="address to listen on (default 127.0.0.1: this machine only)",
    )  # fmt: skip
    where.add_argument(
        "--port", "--vllm_server_port", type=int, metavar="N", help="HTTP port (default 8000)"
    )
    where.add_argument(
        "--output_dir", metavar="TEXT",
        help="folder of the log (default grpo-doctor-out/serve)",
    )  # fmt: skip
    where.add_argument(
        "--weights_dir", metavar="TEXT",
        help="folder through which the trainer hands over weights where there is no NCCL; for a "
        "trainer on another machine, one that both see (default /dev/shm, then --output_dir)",
    )  # fmt: skip
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--model", metavar="TEXT",
        help="the trainer's --model, embedded-vl too (default none: the embedded tiny model)",
    )  # fmt: skip
    engine.add_argument(
        "--torch_dtype", type=_dtype, metavar="{" + ",".join(_DTYPES) + "}",
        help="dtype of the weights, best the trainer's (default auto: the model's own; float32 "
        "with the embedded model)",
    )  # fmt: skip
    _add_vllm_flags(engine)
    return parser


def _add_vllm_flags(group: argparse._ArgumentGroup) -> None:
    flags = (
        ("tensor_parallel_size", int, "N", "devices that share the weights (default 1)"),
        (
            "gpu_memory_utilization", float, "X",
            ("share of each device's memory for weights and KV cache; without a GPU, share of the "
            "host's memory for the KV cache (default 0.9; 0.02 with the embedded model)"),
        ),
        (
            "max_model_len", int, "N",
            "longest prompt and completion together (default: the model's own limit)",
        ),
        ("max_num_seqs", int, "N", "sequences decoded at once (default: vLLM's)"),
    )  # fmt: skip
    for name, kind, metavar, text in flags:
        group.add_argument(f"--{name}", f"--vllm_{name}", type=kind, metavar=metavar, help=text)
    switches = (
        ("enforce_eager", "no CUDA graphs: starts sooner, decodes more slowly (default false)"),
        ("enable_prefix_caching", "compute the shared start of prompts once (default true)"),
    )
    for name, text in switches:
        group.add_argument(
            f"--{name}", f"--vllm_{name}", type=boolean, nargs="?", const=True,
            metavar="true|false", help=text,
        )  # fmt: skip


def _dtype(text: str) -> str:
    if text not in _DTYPES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_DTYPES)}")
    return text


def _check(config: ServeConfig) -> None:
    model = config.model
    is_path = model is not None and model.startswith(("/", ".", "~"))
    if is_path and not (Path(str(model)).expanduser() / "config.json").is_file():
        raise ConfigError(f"--model {model}: no such folder, or no config.json in it")
    if not 0 <= config.port <= 65535:
        raise ConfigError(f"--port {config.port} must be between 0 (any free one) and 65535")
    if not 0 < config.gpu_memory_utilization <= 1:
        raise ConfigError(
            f"--gpu_memory_utilization {config.gpu_memory_utilization} must be above 0 and at "
            "most 1"
        )
    for name in ("tensor_parallel_size", "max_model_len", "max_num_seqs"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name} {value} must be at least 1")
