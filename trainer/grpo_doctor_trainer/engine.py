"""What turns a loss into new weights: DeepSpeed, or plain DDP.

Both engines keep the backward pass and the optimizer step apart, because these are two phases.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.ranks import Ranks

_ADAM_BETAS = (0.9, 0.95)  # ms-swift's defaults


class Engine:
    """The wrapped model and its optimizer; here those of torch's DDP, or of a single rank.

    Attributes:
        model: what forward passes go through.
        module: the model itself, without the wrapper.
        optimizer: the optimizer that holds the state tensors.
        device: where it computes; with ZeRO-3 offload the weights may be elsewhere.
        zero_stage: DeepSpeed's ZeRO stage, or None without DeepSpeed.
        name: for the log.
    """

    zero_stage: int | None = None
    name = "no DeepSpeed (plain DDP)"

    def __init__(
        self, model: Any, optimizer: Any, device: torch.device, config: TrainerConfig
    ) -> None:
        self.model, self.module = model, getattr(model, "module", model)
        self.optimizer: torch.optim.Optimizer = optimizer
        self.device = device
        self._config = config

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Surround one forward and backward pass; the last one of a step adds up over ranks."""
        alone = last or not hasattr(self.model, "no_sync")
        context: AbstractContextManager[None] = nullcontext() if alone else self.model.no_sync()
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of `loss` / accumulation steps to what is accumulated."""
        torch.autograd.backward(loss / self._config.gradient_accumulation_steps)

    def step(self, learning_rate: float) -> float:
        """Clip gradients, change the weights, and return the gradients' norm before clipping."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        return self._stepped()

    def _stepped(self) -> float:
        trained = [weight for weight in self.module.parameters() if weight.requires_grad]
        limit = self._config.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(trained, limit)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(norm)


class DeepSpeedEngine(Engine):
    """DeepSpeed's engine, which accumulates, clips and keeps the optimizer by itself."""

    def __init__(self, model: Any, device: torch.device, config: TrainerConfig) -> None:
        super().__init__(model, model.optimizer, device, config)
        self.zero_stage = model.zero_optimization_stage()
        zero = model.config["zero_optimization"]
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


def make_engine(deepspeed: Any | None, policy: Any, config: TrainerConfig, ranks: Ranks) -> Engine:
    """Wrap the policy for training and make its optimizer.

    Args:
        deepspeed: what `prepare_deepspeed` gave.
        policy: the model to train.
        config: of the run.
        ranks: the ranks of this job.
    """
    policy.train()  # from_pretrained leaves it in eval mode, without gradient checkpointing
    groups = _parameter_groups(policy, config.weight_decay)
    if deepspeed is None:
        model = policy.to(ranks.device)
        if ranks.world_size > 1:
            devices = None if ranks.device.index is None else [ranks.device.index]
            model = DistributedDataParallel(policy, device_ids=devices)
        optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=_ADAM_BETAS)
        return Engine(model, optimizer, ranks.device, config)
    from deepspeed import initialize  # noqa: PLC0415 - seconds, and not for plain DDP

    adam: Any = torch.optim.AdamW
    zero = deepspeed.config["zero_optimization"]
    fill_sizes(zero, policy.config.get_text_config().hidden_size)
    if "offload_optimizer" in zero and ranks.device.type != "cpu":
        # It is compiled at start-up; without a GPU torch's AdamW is on the CPU anyway.
        from deepspeed.ops.adam import DeepSpeedCPUAdam  # noqa: PLC0415

        adam = DeepSpeedCPUAdam
    optimizer = adam(groups, lr=config.learning_rate, betas=_ADAM_BETAS)
    model, *_ = initialize(model=policy, optimizer=optimizer, config=deepspeed.config)
    return DeepSpeedEngine(model, ranks.device, config)


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


def stepped_optimizer(engine: Engine) -> Any:
    """Return the AdamW that DeepSpeed's optimizer drives, or the optimizer itself."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)


def local_weights(model: Any) -> list[torch.Tensor]:
    """Return what this rank holds of each weight; under ZeRO-3 that is its `ds_tensor`."""
    return [getattr(weight, "ds_tensor", weight) for weight in model.parameters()]


def frozen_engine(reference: Any, engine: Engine, deepspeed: Any | None) -> Any:
    """Put the reference model where the policy is: on the device, or partitioned like it."""
    if deepspeed is None or engine.zero_stage != 3:
        return reference.to(engine.device)
    from deepspeed import initialize  # noqa: PLC0415 - has been imported with the engine

    needed = ("train_micro_batch_size_per_gpu", "train_batch_size", "bf16", "zero_optimization")
    settings = {name: deepspeed.config[name] for name in needed}
    wrapped, *_ = initialize(model=reference, config=settings)
    wrapped.eval()
    return wrapped


def prepare_deepspeed(config: TrainerConfig, ranks: Ranks, dtype: torch.dtype) -> Any | None:
    """Make DeepSpeed's configuration, before the model: ZeRO-3 partitions weights as they load.

    Returns:
        the configuration as transformers' `HfDeepSpeedConfig`, which holds as long as it is
        referred to; None without DeepSpeed.
    """
    # `accelerate launch` puts its own options and its configuration file into the environment, and
    # transformers reads FSDP's there: the decisions are those of this trainer's flags.
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        del os.environ[name]
    if config.deepspeed is None:
        return None
    _quiet_deepspeed()
    from transformers.integrations import HfDeepSpeedConfig  # noqa: PLC0415 - imports DeepSpeed

    settings = deepspeed_config(
        config,
        world_size=ranks.world_size,
        dtype=str(dtype).removeprefix("torch."),
        on_gpu=ranks.device.type != "cpu",
    )
    return HfDeepSpeedConfig(settings)


def deepspeed_config(
    config: TrainerConfig, *, world_size: int, dtype: str, on_gpu: bool
) -> dict[str, Any]:
    """Make the whole configuration for `--deepspeed`."""
    micro, accumulation = config.per_device_train_batch_size, config.gradient_accumulation_steps
    return {
        "zero_optimization": _zero(config.deepspeed or "zero0", on_gpu),
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": micro * accumulation * world_size,
        "gradient_clipping": config.max_grad_norm,
        "bf16": {"enabled": dtype == "bfloat16"},
        # torch's AdamW offloaded, on a machine without a GPU.
        "zero_force_ds_cpu_optimizer": on_gpu,
    }


def fill_sizes(zero: dict[str, Any], hidden_size: int) -> None:
    """Fill ZeRO-3's sizes, as accelerate does where it finds the hidden size."""
    if zero["stage"] == 3:
        zero["reduce_bucket_size"] = hidden_size * hidden_size
        zero["stage3_param_persistence_threshold"] = 10 * hidden_size


def _zero(preset: str, on_gpu: bool) -> dict[str, Any]:
    stage = int(preset[4])
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero |= {"overlap_comm": False, "contiguous_gradients": True}
    if stage in {1, 2}:
        zero |= {"reduce_bucket_size": 200_000_000, "allgather_bucket_size": 200_000_000}
    if stage == 3:
        zero |= {
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


def default_dtype(config: TrainerConfig, device: torch.device) -> torch.dtype:
    """Resolve `--torch_dtype`."""
    if config.torch_dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype: torch.dtype = getattr(torch, config.torch_dtype)
    return dtype


def _quiet_deepspeed() -> None:
    import deepspeed  # noqa: PLC0415
    from deepspeed.utils import logger  # noqa: PLC0415

    logger.setLevel(logging.WARNING)
    # A C++ extension for tensor-parallel inference on CPUs: compiled for half a minute at start-up,
    # and never used in training.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
