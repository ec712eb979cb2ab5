"""What an engine makes of the one that it drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer import engine as engine_module
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.engine import DdpEngine, DeepSpeedEngine, make_engine
from grpo_doctor_trainer.ranks import Ranks


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
    return DeepSpeedEngine(inner, torch.device("cpu"))


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


def alone(config: TrainerConfig, model: Any | None = None) -> DdpEngine:
    """A rank without DeepSpeed, whose model no one wraps."""
    module = model or torch.nn.Linear(2, 1)
    accelerator = SimpleNamespace(
        device=torch.device("cpu"), unwrap_model=lambda wrapped: getattr(wrapped, "module", wrapped)
    )
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    return DdpEngine(accelerator, module, SimpleNamespace(optimizer=optimizer), config)


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


def made(config: TrainerConfig, ranks: int, wrap: Any, zero: dict[str, Any]) -> tuple[Any, Any]:
    """An engine, and the optimizer that it was given."""
    losses: list[Any] = []

    def prepare(policy: Any, optimizer: Any) -> tuple[Any, Any]:
        losses.append(optimizer)
        return wrap(policy), SimpleNamespace(optimizer=optimizer)

    settings = {"zero_optimization": zero}
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        prepare=prepare,
        unwrap_model=lambda model: model,
        state=SimpleNamespace(deepspeed_plugin=SimpleNamespace(deepspeed_config=settings)),
    )
    world = Ranks(0, ranks, 0, torch.device("cpu"), threads=1)
    engine = make_engine(accelerator, Decoder().eval(), config, world)
    return engine, losses[0]


def test_matrices_are_decayed_and_norms_and_biases_are_not() -> None:
    config = TrainerConfig(deepspeed=None, weight_decay=0.25, learning_rate=0.5)
    engine, optimizer = made(config, 1, lambda policy: policy, {})
    assert engine.module.training
    groups = [
        ([tuple(weight.shape) for weight in group["params"]], group["weight_decay"], group["lr"])
        for group in optimizer.param_groups
    ]
    assert groups == [([(2, 2)], 0.25, 0.5), ([(2,)] * 3, 0.0, 0.5)]


def test_weights_that_are_cut_into_parts_are_decayed_by_their_whole_shape() -> None:
    def empty_shells(policy: Any) -> list[tuple[int, ...]]:
        for weight in policy.parameters():
            weight.ds_shape, weight.data = weight.shape, torch.empty(0)
        groups = engine_module._parameter_groups(policy, 0.1)
        return [tuple(weight.ds_shape) for weight in groups[0]["params"]]

    assert empty_shells(Decoder()) == [(2, 2)]


def test_what_accelerate_made_must_be_what_was_asked_for() -> None:
    plain = TrainerConfig(deepspeed=None)
    made(plain, 1, lambda policy: policy, {})
    with pytest.raises(RuntimeError, match="made a Decoder where DistributedDataParallel was"):
        made(plain, 2, lambda policy: policy, {})
    zero: dict[str, Any] = {"reduce_bucket_size": "auto"}
    with pytest.raises(RuntimeError, match="made a Decoder where DeepSpeedEngine was asked for"):
        made(TrainerConfig(deepspeed="zero2"), 1, lambda policy: policy, zero)
    assert zero == {"reduce_bucket_size": 100}


def test_a_deepspeed_engine_is_driven_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("deepspeed", reason="needs the trainer extra")

    class Driven:
        """What is looked at of DeepSpeed's engine."""

        def __init__(self, policy: Any) -> None:
            self.module, self.optimizer, self.boundaries = policy, None, list[bool]()
            self.config: dict[str, Any] = {"zero_optimization": {}}

        def zero_optimization_stage(self) -> int:
            return 2

        def set_gradient_accumulation_boundary(self, *, is_boundary: bool) -> None:
            self.boundaries.append(is_boundary)

    monkeypatch.setattr(package, "DeepSpeedEngine", Driven)
    engine, _ = made(TrainerConfig(deepspeed="zero2"), 2, Driven, {})
    for last in (False, True):
        with engine.micro_batch(last=last):
            pass
    assert engine.model.boundaries == [False, True]
    assert engine.zero_stage == 2
    assert type(engine.module) is Decoder


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
    settings = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, "scheduler": {}}
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        state=SimpleNamespace(deepspeed_plugin=SimpleNamespace(deepspeed_config=settings)),
    )
    reference = torch.nn.Linear(2, 2).eval()
    engine: Any = SimpleNamespace(zero_stage=stage)
    assert not engine_module.frozen_engine(reference, engine, accelerator).training
    expected = {name: settings[name] for name in ("bf16", "zero_optimization")}
    assert calls == ([expected] if stage == 3 else [])
