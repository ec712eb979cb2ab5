"""Offload around the rollout: on a CPU real copies that change no value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("transformers", reason="needs the trainer extra")

from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.offload import make_offload  # noqa: E402


def engine_after_one_step() -> Any:
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return SimpleNamespace(module=module, optimizer=optimizer, device=torch.device("cpu"))


def offload(engine: Any, *flags: str, reference: Any = None, shares_weights: bool = True) -> Any:
    config = parse(flags, 1)
    rollout = SimpleNamespace(shares_weights=shares_weights)
    return make_offload(config, engine, reference, rollout)


def test_without_the_flags_nothing_is_looked_for() -> None:
    plan = offload(engine_after_one_step())
    assert not plan.enabled
    with plan.during_rollout():
        pass


def test_optimizer_moments_and_weights_are_found() -> None:
    engine = engine_after_one_step()
    moments = offload(engine, "--offload_optimizer", "true").find()
    assert len(moments) == 4  # two moments of two weights; the step counters stay
    weights = offload(engine, "--offload_model", "true").find()
    assert {id(w) for w in weights} == {id(w) for w in engine.module.parameters()}


def test_the_reference_moves_with_the_model() -> None:
    engine, reference = engine_after_one_step(), torch.nn.Linear(5, 5)
    found = {id(w) for w in offload(engine, "--offload_model", "true", reference=reference).find()}
    assert {id(w) for w in reference.parameters()} <= found


def test_values_and_identity_survive_the_way_there_and_back() -> None:
    engine = engine_after_one_step()
    plan = offload(engine, "--offload_model", "true", "--offload_optimizer", "true")
    before = [(id(tensor), tensor.detach().clone()) for tensor in plan.find()]
    with plan.during_rollout():
        pass
    after = plan.find()
    assert [id(tensor) for tensor in after] == [number for number, _ in before]
    assert all(now.equal(then) for now, (_, then) in zip(after, before, strict=True))


def test_no_state_before_the_first_step_is_no_error() -> None:
    module = torch.nn.Linear(3, 2)
    engine = SimpleNamespace(
        module=module, optimizer=torch.optim.AdamW(module.parameters()), device=torch.device("cpu")
    )
    with offload(engine, "--offload_optimizer", "true").during_rollout():
        pass
