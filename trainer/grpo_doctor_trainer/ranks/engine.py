"""What turns a loss into new weights: accelerate, with DeepSpeed or with plain DDP.

Both engines keep the backward pass and the optimizer step apart, because these are two phases.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn.parallel import DistributedDataParallel

from grpo_doctor_trainer.ranks.deepspeed import fill_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.ranks.group import Ranks

_ADAM_BETAS = (0.9, 0.95)  # ms-swift's defaults


class Engine(Protocol):
    """Owns the wrapped model and its optimizer.

    Attributes:
        model: what forward passes go through.
        module: the model itself, without the wrapper.
        optimizer: the optimizer that holds the state tensors.
        device: where it computes; with ZeRO-3 offload the weights may be elsewhere.
        zero_stage: DeepSpeed's ZeRO stage, or None without DeepSpeed.
    """

    model: Any
    module: Any
    optimizer: torch.optim.Optimizer
    device: torch.device
    zero_stage: int | None

    def describe(self) -> str:
        """Name the engine for the log."""

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Surround one forward and backward pass; the last one of a step adds up over ranks."""

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of `loss` / accumulation steps to what is accumulated."""

    def step(self, learning_rate: float) -> float:
        """Clip, changes the weights, forgets the gradients; gives the norm before clipping."""


def make_engine(accelerator: Any, policy: Any, config: TrainerConfig, ranks: Ranks) -> Engine:
    """Wrap the policy for training and makes its optimizer."""
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


class DeepSpeedEngine:
    """DeepSpeed's engine, which accumulates, clips and keeps the optimizer by itself."""

    def __init__(self, engine: Any, device: torch.device) -> None:
        self.model = engine
        self.device = device
        self.module = engine.module
        self.optimizer = engine.optimizer
        self.zero_stage: int | None = engine.zero_optimization_stage()

    def describe(self) -> str:
        """Name the engine for the log."""
        offload = self.model.config["zero_optimization"]
        parts = [part for part in ("optimizer", "param") if offload.get(f"offload_{part}")]
        moved = f", {' and '.join(parts)} offload" if parts else ""
        return f"DeepSpeed ZeRO-{self.zero_stage}{moved}"

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Say where the accumulation ends."""
        self.model.set_gradient_accumulation_boundary(is_boundary=last)
        yield

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass, scaled by DeepSpeed."""
        self.model.backward(loss)

    def step(self, learning_rate: float) -> float:
        """Run DeepSpeed's step."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        own_norm = _gradient_norm(self.module) if self.zero_stage == 0 else 0.0
        self.model.step()
        norm = self.model.get_global_grad_norm()  # none with ZeRO-0 in float32
        return own_norm if norm is None else float(norm)


def _gradient_norm(module: Any) -> float:
    gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
    return float(torch.linalg.vector_norm(torch.stack([g.float().norm() for g in gradients])))


class DdpEngine:
    """torch's DistributedDataParallel, or the bare model on a single rank."""

    zero_stage: int | None = None

    def __init__(self, accelerator: Any, model: Any, optimizer: Any, config: TrainerConfig) -> None:
        self.model = model
        self.device: torch.device = accelerator.device
        self.module = accelerator.unwrap_model(model)
        self.optimizer = optimizer.optimizer
        self._trained = [weight for weight in self.module.parameters() if weight.requires_grad]
        self._accumulation = config.gradient_accumulation_steps
        self._clip_at = config.max_grad_norm or float("inf")

    def describe(self) -> str:
        """Name the engine for the log."""
        return "no DeepSpeed (plain DDP)"

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Keep gradients on this rank until the last pass."""
        alone = last or not hasattr(self.model, "no_sync")
        with nullcontext() if alone else self.model.no_sync():
            yield

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass."""
        torch.autograd.backward(loss / self._accumulation)

    def step(self, learning_rate: float) -> float:
        """Clip and steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
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
