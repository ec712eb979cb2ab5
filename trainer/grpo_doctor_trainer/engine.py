"""What turns a loss into new weights: accelerate, with DeepSpeed or with plain DDP.

Both engines keep the backward pass and the optimizer step apart, because these are two phases.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch.nn.parallel import DistributedDataParallel

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.validation import DEEPSPEED_PRESETS

_ADAM_BETAS = (0.9, 0.95)  # ms-swift's defaults

_OWN_SECTIONS = ("optimizer", "scheduler")


class Engine:
    """The wrapped model and its optimizer.

    Attributes:
        model: what forward passes go through.
        module: the model itself, without the wrapper.
        optimizer: the optimizer that holds the state tensors.
        device: where it computes; with ZeRO-3 offload the weights may be elsewhere.
        zero_stage: DeepSpeed's ZeRO stage, or None without DeepSpeed.
        name: for the log.
    """

    model: Any
    module: Any
    optimizer: torch.optim.Optimizer
    device: torch.device
    zero_stage: int | None = None
    name: str

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Surround one forward and backward pass; the last one of a step adds up over ranks."""
        raise NotImplementedError

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of `loss` / accumulation steps to what is accumulated."""
        raise NotImplementedError

    def step(self, learning_rate: float) -> float:
        """Clip gradients, change the weights, and return the gradients' norm before clipping."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        return self._stepped()

    def _stepped(self) -> float:
        raise NotImplementedError


def make_engine(accelerator: Any, policy: Any, config: TrainerConfig, ranks: Ranks) -> Engine:
    """Wrap the policy for training and make its optimizer."""
    policy.train()  # from_pretrained leaves it in eval mode, without gradient checkpointing
    groups = _parameter_groups(policy, config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=_ADAM_BETAS)
    if config.deepspeed is None:
        policy.to(accelerator.device)
    else:
        zero = accelerator.state.deepspeed_plugin.deepspeed_config["zero_optimization"]
        fill_sizes(zero, policy.config.get_text_config().hidden_size)
    model, optimizer = accelerator.prepare(policy, optimizer)
    if config.deepspeed is None:
        if ranks.world_size > 1:  # alone, it may be either
            _require(type(model), DistributedDataParallel)
        return DdpEngine(accelerator, model, optimizer, config)
    import deepspeed  # noqa: PLC0415

    _require(type(model), deepspeed.DeepSpeedEngine)
    return DeepSpeedEngine(model, ranks.device)


def _require(actual: type, expected: type) -> None:
    # accelerate decides from environment variables, and ranks that train apart look healthy.
    if not issubclass(actual, expected):
        raise RuntimeError(
            f"accelerate made a {actual.__name__} where {expected.__name__} was asked for"
        )


def _parameter_groups(policy: Any, weight_decay: float) -> list[dict[str, Any]]:
    trained = [weight for weight in policy.parameters() if weight.requires_grad]
    # Norms and biases are not decayed. ZeRO-3 hides the shape of partitioned weights in ds_shape.
    matrices = [weight for weight in trained if len(getattr(weight, "ds_shape", weight.shape)) > 1]
    vectors = [weight for weight in trained if len(getattr(weight, "ds_shape", weight.shape)) <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class DeepSpeedEngine(Engine):
    """DeepSpeed's engine, which accumulates, clips and keeps the optimizer by itself."""

    def __init__(self, engine: Any, device: torch.device) -> None:
        self.model, self.module, self.optimizer = engine, engine.module, engine.optimizer
        self.device = device
        self.zero_stage = engine.zero_optimization_stage()
        zero = engine.config["zero_optimization"]
        parts = [part for part in ("optimizer", "param") if zero.get(f"offload_{part}")]
        moved = f", {' and '.join(parts)} offload" if parts else ""
        self.name = f"DeepSpeed ZeRO-{self.zero_stage}{moved}"

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Set where the accumulation ends."""
        self.model.set_gradient_accumulation_boundary(is_boundary=last)
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass, scaled by DeepSpeed."""
        self.model.backward(loss)

    def _stepped(self) -> float:
        own_norm = 0.0
        if self.zero_stage == 0:  # in float32 DeepSpeed gives none
            gradients = [w.grad for w in self.module.parameters() if w.grad is not None]
            norms = torch.stack([gradient.float().norm() for gradient in gradients])
            own_norm = float(torch.linalg.vector_norm(norms))
        self.model.step()
        norm = self.model.get_global_grad_norm()
        return own_norm if norm is None else float(norm)


class DdpEngine(Engine):
    """torch's DistributedDataParallel, or the bare model on a single rank."""

    name = "no DeepSpeed (plain DDP)"

    def __init__(self, accelerator: Any, model: Any, optimizer: Any, config: TrainerConfig) -> None:
        self.model, self.module = model, accelerator.unwrap_model(model)
        self.device = accelerator.device
        self.optimizer = optimizer.optimizer
        self._trained = [weight for weight in self.module.parameters() if weight.requires_grad]
        self._accumulation = config.gradient_accumulation_steps
        self._clip_at = config.max_grad_norm or float("inf")

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Keep gradients on this rank until the last pass."""
        alone = last or not hasattr(self.model, "no_sync")
        context: AbstractContextManager[None] = nullcontext() if alone else self.model.no_sync()
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass."""
        torch.autograd.backward(loss / self._accumulation)

    def _stepped(self) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self._trained, self._clip_at)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(norm)


def stepped_optimizer(engine: Engine) -> Any:
    """Return the AdamW that DeepSpeed's optimizer drives, or the optimizer itself."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


def local_weights(model: Any) -> list[torch.Tensor]:
    """Return what this rank holds of each weight; under ZeRO-3 that is its `ds_tensor`."""
    return [getattr(weight, "ds_tensor", weight) for weight in model.parameters()]


def frozen_engine(reference: Any, engine: Engine, accelerator: Any) -> Any:
    """Put the reference model where the policy is: on the device, or partitioned like it."""
    if engine.zero_stage != 3:
        return reference.to(accelerator.device)
    import deepspeed  # noqa: PLC0415

    settings = accelerator.state.deepspeed_plugin.deepspeed_config
    needed = {
        *("train_micro_batch_size_per_gpu", "train_batch_size"),
        *("bf16", "fp16", "zero_optimization"),
    }
    wrapped, *_ = deepspeed.initialize(
        model=reference, config={name: value for name, value in settings.items() if name in needed}
    )
    wrapped.eval()
    return wrapped


def deepspeed_config(
    config: TrainerConfig, *, world_size: int, dtype: str, on_gpu: bool
) -> dict[str, Any]:
    """Make the whole configuration for `--deepspeed`, with nothing left on `auto` that we know."""
    choice = config.deepspeed or "zero0"
    if choice in DEEPSPEED_PRESETS:
        settings: dict[str, Any] = {"zero_optimization": _zero(choice, on_gpu)}
    else:
        settings = _read(Path(choice))
    micro, accumulation = config.per_device_train_batch_size, config.gradient_accumulation_steps
    derived = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro * accumulation * world_size,
        "gradient_clipping": config.max_grad_norm,
    }
    for name, value in derived.items():
        _fill(settings, name, value, choice)
    for section, name in (("bf16", "bfloat16"), ("fp16", "float16")):
        _fill(settings.setdefault(section, {}), "enabled", dtype == name, f"{choice}, {section}")
    # DeepSpeedCPUAdam is compiled at start-up; on a machine without a GPU torch's AdamW is on the
    # CPU anyway, so no compiler is asked for.
    settings.setdefault("zero_force_ds_cpu_optimizer", on_gpu)
    return settings


def zero_stage(config: TrainerConfig) -> int | None:
    """Return the stage that `--deepspeed` asks for, and none without DeepSpeed."""
    if config.deepspeed is None:
        return None
    if config.deepspeed in DEEPSPEED_PRESETS:
        return int(config.deepspeed[4])
    return int(_read(Path(config.deepspeed))["zero_optimization"].get("stage", 0))


def fill_sizes(zero: dict[str, Any], hidden_size: int) -> None:
    """Fill the sizes that are still `auto`, as accelerate does where it finds the hidden size.

    It looks for that at the top of the model's configuration; a vision-language model has it below.
    """
    square = hidden_size * hidden_size
    sizes = {
        "reduce_bucket_size": square,
        "stage3_prefetch_bucket_size": int(0.9 * square),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
    zero.update({name: size for name, size in sizes.items() if zero.get(name) == "auto"})


def _zero(preset: str, on_gpu: bool) -> dict[str, Any]:
    stage = int(preset[4])
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": False, "contiguous_gradients": True}
    if stage in {1, 2}:
        zero |= {"reduce_bucket_size": 200_000_000, "allgather_bucket_size": 200_000_000}
    if stage == 3:
        zero |= {
            "reduce_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            # Rollout and training run through the modules in different orders, and prefetching
            # from the other's order fails: huggingface/trl and ms-swift (#3237) switch it off too.
            "stage3_prefetch_bucket_size": 0,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    if preset.endswith("_offload"):
        to_host = {"device": "cpu", "pin_memory": on_gpu}
        zero["offload_optimizer"] = to_host
        if stage == 3:
            zero["offload_param"] = dict(to_host)
    return zero


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"--deepspeed {path} cannot be read as JSON: {error}") from None
    if not isinstance(settings, dict) or not isinstance(settings.get("zero_optimization"), dict):
        raise ConfigError(
            f"--deepspeed {path} has no section zero_optimization; add at least a stage"
        )
    for section in _OWN_SECTIONS:
        if section in settings:
            raise ConfigError(
                f"--deepspeed {path}: take the section {section} out; this trainer makes AdamW and "
                "its schedule itself (--learning_rate, --weight_decay, --lr_scheduler_type)"
            )
    return settings


def _fill(settings: dict[str, Any], name: str, value: Any, source: str) -> None:
    written = settings.get(name, "auto")
    if written == "auto":
        settings[name] = value
    elif written != value:
        raise ConfigError(
            f"--deepspeed {source}: {name} is {written}, but the flags of this launch make it "
            f'{value}; write "auto" there, or change the flag'
        )


def default_dtype(config: TrainerConfig, device: torch.device) -> torch.dtype:
    """Resolve `--torch_dtype`."""
    if config.torch_dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, config.torch_dtype)
    return dtype


def make_accelerator(config: TrainerConfig, ranks: Ranks, dtype: torch.dtype) -> Any:
    """Make the Accelerator. With DeepSpeed this comes before the model is loaded (ZeRO-3 init)."""
    on_cpu = ranks.device.type == "cpu"
    _forget_launchers_choices()
    if config.deepspeed is None:
        # Without cpu=True accelerate takes gloo ranks for a single process and wraps nothing.
        return Accelerator(cpu=on_cpu)
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    _quiet_deepspeed()
    _import_muon_uncompiled()
    settings = deepspeed_config(
        config,
        world_size=ranks.world_size,
        dtype=str(dtype).removeprefix("torch."),
        on_gpu=not on_cpu,
    )
    # Here not cpu=True: that quietly turns DeepSpeed into plain DDP.
    return Accelerator(
        deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings),
        gradient_accumulation_steps=config.gradient_accumulation_steps,
    )


def _forget_launchers_choices() -> None:
    """Leave the decisions to this trainer's flags, however it was launched.

    `accelerate launch` puts its own options and its configuration file into the environment, and
    Accelerator takes mixed precision, DeepSpeed, FSDP and more from there before its arguments.
    """
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]


def _quiet_deepspeed() -> None:
    import deepspeed  # noqa: PLC0415
    from deepspeed.utils import logger  # noqa: PLC0415

    logger.setLevel(logging.WARNING)
    # A C++ extension for tensor-parallel inference on CPUs: compiled for half a minute at start-up,
    # and never used in training.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _import_muon_uncompiled() -> None:
    """Import DeepSpeed's Muon, which nothing here trains with, without torch's compiler.

    DeepSpeed imports it to look at any optimizer, and its decorated functions import Inductor at
    once: 550 modules, 1.5 s of each rank's start-up.
    """
    with suppress(ImportError, AttributeError):  # a DeepSpeed without either is left as it is
        compiler: Any = import_module("deepspeed.runtime.compiler")
        compiles = compiler.compile
        compiler.compile = lambda: lambda function: function
        try:
            import_module("deepspeed.runtime.zero.muon.original_muon")
        finally:
            compiler.compile = compiles
