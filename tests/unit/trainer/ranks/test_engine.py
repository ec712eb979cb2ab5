"""What an engine makes of the one that it drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer import engine as engine_module
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import DeepSpeedEngine, Engine, make_engine
from grpo_doctor_trainer.ranks import Ranks

ALONE = Ranks(0, 1, 0, torch.device("cpu"), threads=1)


def deepspeed(stage: int, norm: Any, **offload: Any) -> DeepSpeedEngine:
    """An engine of a module whose gradients have a norm of 5."""
    module = torch.nn.Linear(2, 1)
    module.weight.grad, module.bias.grad = torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])
    optimizer = torch.optim.SGD(module.parameters(), 1.0)

    def step() -> None:  # DeepSpeed's own takes the gradients with it
        optimizer.step()
        optimizer.zero_grad()

    inner = SimpleNamespace(
        module=module,
        optimizer=optimizer,
        config={"zero_optimization": offload},
        step=step,
        zero_optimization_stage=lambda: stage,
        get_global_grad_norm=lambda: norm,
    )
    return DeepSpeedEngine(inner, torch.device("cpu"), TrainerConfig())


@pytest.mark.parametrize(
    ("stage", "deepspeeds_own", "norm"),
    [(0, None, 5.0), (0, torch.tensor(2.0), 2.0), (2, torch.tensor(3.0), 3.0), (3, None, 0.0)],
)
def test_the_norm_is_deepspeeds_and_of_the_gradients_where_it_has_none(
    stage: int, deepspeeds_own: torch.Tensor | None, norm: float
) -> None:
    engine = deepspeed(stage, deepspeeds_own)
    before = engine.module.bias.item()
    assert engine.step(0.5) == pytest.approx(norm)
    assert engine.module.bias.item() == pytest.approx(before - 0.5 * 4.0)


def alone(config: TrainerConfig, model: Any | None = None) -> Engine:
    """A rank without DeepSpeed, whose model no one wraps."""
    module = model or torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    return Engine(module, optimizer, torch.device("cpu"), config)


@pytest.mark.parametrize(("limit", "step"), [(1.0, 1.0), (5.0, 5.0), (9.0, 5.0), (0.0, 5.0)])
def test_gradients_are_clipped_at_the_limit_and_zero_is_none(limit: float, step: float) -> None:
    engine = alone(TrainerConfig(max_grad_norm=limit))
    engine.module.weight.grad = torch.tensor([[3.0, 0.0]])
    engine.module.bias.grad = torch.tensor([4.0])
    before = engine.module.bias.item()
    assert engine.step(0.5) == pytest.approx(5.0)
    assert engine.module.bias.item() == pytest.approx(before - 0.5 * 4.0 * step / 5.0, abs=1e-5)
    assert engine.module.bias.grad is None


def test_a_loss_counts_by_its_share_of_the_step() -> None:
    engine = alone(TrainerConfig(gradient_accumulation_steps=4))
    for _ in range(2):
        engine.backward(engine.module.bias.sum())
    assert engine.module.bias.grad.tolist() == [0.5]
    assert engine.name == "no DeepSpeed (plain DDP)"


class Wrapped(torch.nn.Module):
    """As DDP: gradients stay on this rank within `no_sync`."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, 1)
        self.apart: list[str] = []

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.apart.append("begin")
        yield
        self.apart.append("end")


def test_only_the_last_pass_of_a_step_adds_up_over_ranks() -> None:
    model = Wrapped()
    engine = alone(TrainerConfig(), model)
    with engine.micro_batch(last=True):
        assert model.apart == []
    with engine.micro_batch(last=False):
        assert model.apart == ["begin"]
    assert model.apart == ["begin", "end"]
    with alone(TrainerConfig()).micro_batch(last=False):  # nobody to add up with
        pass


class Decoder(torch.nn.Module):
    """A matrix, a bias, a norm, and a part that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(2, 2), torch.nn.LayerNorm(2)
        self.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=10))


def test_matrices_are_decayed_and_norms_and_biases_are_not() -> None:
    config = TrainerConfig(deepspeed=None, weight_decay=0.25, learning_rate=0.5)
    engine = make_engine(None, Decoder().eval(), config, ALONE)
    assert engine.module.training
    groups = [
        ([tuple(weight.shape) for weight in group["params"]], group["weight_decay"], group["lr"])
        for group in engine.optimizer.param_groups
    ]
    assert groups == [([(2, 2)], 0.25, 0.5), ([(2,)] * 3, 0.0, 0.5)]


def test_weights_that_are_cut_into_parts_are_decayed_by_their_whole_shape() -> None:
    def empty_shells(policy: Any) -> list[tuple[int, ...]]:
        for weight in policy.parameters():
            weight.ds_shape, weight.data = weight.shape, torch.empty(0)
        groups = engine_module._parameter_groups(policy, 0.1)
        return [tuple(weight.ds_shape) for weight in groups[0]["params"]]

    assert empty_shells(Decoder()) == [(2, 2)]


class Driven:
    """What is looked at of DeepSpeed's engine."""

    def __init__(self, model: Any, optimizer: Any, config: dict[str, Any]) -> None:
        self.module, self.optimizer, self.config = model, optimizer, config
        self.boundaries: list[bool] = []

    def zero_optimization_stage(self) -> int:
        return 2

    def set_gradient_accumulation_boundary(self, *, is_boundary: bool) -> None:
        self.boundaries.append(is_boundary)


@pytest.mark.parametrize(
    ("device", "offload", "on_host"),
    [("cpu", True, False), ("cuda", True, True), ("cuda", False, False)],
)
def test_a_deepspeed_engine_is_driven_as_one(
    monkeypatch: pytest.MonkeyPatch, device: str, offload: bool, on_host: bool
) -> None:
    package = pytest.importorskip("deepspeed", reason="needs the trainer extra")
    adam = import_module("deepspeed.ops.adam")
    monkeypatch.setattr(package, "initialize", lambda **given: (Driven(**given), None, None, None))
    compiled = type("OnHost", (torch.optim.AdamW,), {})
    monkeypatch.setattr(adam, "DeepSpeedCPUAdam", compiled)
    zero: dict[str, Any] = {"stage": 3} | ({"offload_optimizer": {}} if offload else {})
    settings = SimpleNamespace(config={"zero_optimization": zero})
    ranks = Ranks(0, 2, 0, torch.device(device), threads=1)
    engine = make_engine(settings, Decoder(), TrainerConfig(deepspeed="zero2"), ranks)
    for last in (False, True):
        with engine.micro_batch(last=last):
            pass
    assert engine.model.boundaries == [False, True]
    assert engine.zero_stage == 2
    assert type(engine.module) is Decoder
    assert isinstance(engine.optimizer, compiled) == on_host
    assert zero["reduce_bucket_size"] == 100


@pytest.mark.parametrize("stage", [None, 0, 2, 3])
def test_a_reference_is_partitioned_where_the_policy_is(
    monkeypatch: pytest.MonkeyPatch, stage: int | None
) -> None:
    package = pytest.importorskip("deepspeed", reason="needs the trainer extra")
    calls: list[Any] = []

    def initialize(model: Any, config: Any) -> tuple[Any, ...]:
        calls.append(config)
        return model.train(), None, None, None

    monkeypatch.setattr(package, "initialize", initialize)
    needed = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    needed |= dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu"), 8)
    settings = SimpleNamespace(config=needed | {"gradient_clipping": 1.0})
    reference = torch.nn.Linear(2, 2).eval()
    engine: Any = SimpleNamespace(zero_stage=stage, device=torch.device("cpu"))
    assert not engine_module.frozen_engine(reference, engine, settings).training
    assert calls == ([needed] if stage == 3 else [])
