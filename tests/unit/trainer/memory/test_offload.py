"""Offload around the rollout: on a CPU real copies that change no value."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import grpo_doctor_trainer.memory as offload_module
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.memory import Offload, _Moved, _storages


def engine_after_one_step() -> Any:
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return SimpleNamespace(module=module, optimizer=optimizer, device=torch.device("cpu"))


def offload(engine: Any, *flags: str, reference: Any = None, shares_weights: bool = True) -> Any:
    config = parse(flags, 1)
    rollout: Any = SimpleNamespace(shares_weights=shares_weights)
    return Offload(config, engine, reference, rollout)


def tensors_of(plan: Any) -> list[Any]:
    return [tensor for found in plan.tensors().values() for tensor in found]


def test_optimizer_moments_and_weights_are_found() -> None:
    engine = engine_after_one_step()
    moments = tensors_of(offload(engine, "--offload_optimizer", "true"))
    assert len(moments) == 4  # two moments of two weights; the step counters stay
    weights = tensors_of(offload(engine, "--offload_model", "true"))
    assert {id(w) for w in weights} == {id(w) for w in engine.module.parameters()}


def test_values_and_identity_survive_the_way_there_and_back() -> None:
    engine = engine_after_one_step()
    plan = offload(engine, "--offload_model", "true", "--offload_optimizer", "true")
    before = [(id(tensor), tensor.detach().clone()) for tensor in tensors_of(plan)]
    with plan.during_rollout():
        pass
    after = tensors_of(plan)
    assert [id(tensor) for tensor in after] == [number for number, _ in before]
    assert all(now.equal(then) for now, (_, then) in zip(after, before, strict=True))


def test_no_state_before_the_first_step_is_no_error() -> None:
    module = torch.nn.Linear(3, 2)
    engine = SimpleNamespace(
        module=module, optimizer=torch.optim.AdamW(module.parameters()), device=torch.device("cpu")
    )
    with offload(engine, "--offload_optimizer", "true").during_rollout():
        pass


def test_views_of_one_buffer_move_once_and_stay_views_of_it() -> None:
    # As under ZeRO-1 and -2, where the optimizer writes the buffer and the model reads the views.
    module = torch.nn.Linear(3, 2)
    buffer = torch.cat([weight.detach().flatten() for weight in module.parameters()])
    module.weight.data, module.bias.data = buffer[:6].view(2, 3), buffer[6:]
    before = buffer.clone()
    weights = list(module.parameters())
    engine = SimpleNamespace(module=module, device=torch.device("cpu"))
    with offload(engine, "--offload_model", "true").during_rollout():
        buffer.zero_()
    assert buffer.equal(before)
    buffer.fill_(7.0)
    assert all(bool((weight == 7.0).all()) for weight in weights)


def test_memory_of_a_device_is_given_back_and_filled_again() -> None:
    # The CPU's memory stands in for a device's: what matters is the storage behind the tensors.
    first, two = torch.arange(6.0), torch.arange(3.0)
    view = first[2:]
    moved = [_Moved(tensor.untyped_storage(), pinned=False) for tensor in (first, two)]
    for storage in moved:
        storage.free()
    assert first.untyped_storage().nbytes() == two.untyped_storage().nbytes() == 0
    for storage in moved:
        storage.restore()
    assert view.tolist() == [2, 3, 4, 5]
    assert two.tolist() == [0, 1, 2]


def test_what_is_on_the_host_already_stays_there() -> None:
    weight = torch.ones(4)
    assert _storages([weight, weight[1:]], frees=False) != []
    assert len(_storages([weight, weight[1:]], frees=False)) == 1
    assert _storages([weight], frees=True) == []


def test_the_float32_copies_that_the_optimizer_steps_move_with_its_state() -> None:
    module = torch.nn.Linear(3, 2, bias=False)
    copy = module.weight.detach().clone().requires_grad_()
    inner = torch.optim.AdamW([copy])
    engine = SimpleNamespace(
        module=module, optimizer=SimpleNamespace(optimizer=inner), device=torch.device("cpu")
    )
    assert [id(t) for t in tensors_of(offload(engine, "--offload_optimizer", "true"))] == [id(copy)]


@pytest.mark.parametrize(
    ("flags", "moved"),
    [
        ((), []),
        (("--offload_model", "true"), ["model"]),
        (("--offload_optimizer", "true"), ["optimizer"]),
        (("--offload_model", "true", "--offload_optimizer", "true"), ["model", "optimizer"]),
    ],
)
def test_what_was_moved_is_counted(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], moved: list[str]
) -> None:
    counted: dict[str, float] = {}
    monkeypatch.setattr(offload_module, "counter", counted.__setitem__)
    plan = offload(engine_after_one_step(), *flags)
    with plan.during_rollout():
        pass
    sizes = {"model": 4.0 * 8, "optimizer": 2 * 4.0 * 8}
    bytes_of = {f"offload/{kind}_bytes": sizes[kind] * (kind in moved) for kind in sizes}
    total = {"offload/bytes": sum(sizes[kind] for kind in moved)}
    assert counted == (bytes_of | total if moved else {})


@pytest.mark.parametrize(
    ("device", "shares_weights", "moves"),
    [("cpu", True, True), ("cpu", False, True), ("cuda", True, False), ("cuda", False, True)],
)
def test_the_policy_stays_on_a_device_where_the_rollout_reads_it(
    device: str, shares_weights: bool, moves: bool
) -> None:
    engine, reference = engine_after_one_step(), torch.nn.Linear(5, 5)
    engine.device = torch.device(device)
    plan = offload(
        engine, "--offload_model", "true", reference=reference, shares_weights=shares_weights
    )
    addresses = {id(tensor) for tensor in tensors_of(plan)}
    assert {id(w) for w in reference.parameters()} <= addresses
    assert ({id(w) for w in engine.module.parameters()} <= addresses) == moves


def test_memory_is_pinned_only_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pins: list[bool] = []
    make = torch.empty

    def empty(size: int, *, pin_memory: bool, **options: Any) -> Any:
        pins.append(pin_memory)
        return make(size, **options)

    monkeypatch.setattr(torch, "empty", empty)
    for pinned, available in ((True, False), (False, True), (True, True)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        _Moved(torch.ones(2).untyped_storage(), pinned=pinned)
    assert pins == [False, False, True]


def test_garbage_is_collected_on_both_ways_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("cache"))
    monkeypatch.setattr(gc, "collect", lambda: emptied.append("garbage"))
    for collects in (False, True):
        flags = ("--offload_model", "true", "--gc_collect_after_offload", str(collects))
        with offload(engine_after_one_step(), *flags).during_rollout():
            assert emptied == ["garbage", "cache"] * collects
    assert emptied == ["garbage", "cache"] * 2


def test_weights_that_are_cut_into_parts_move_as_this_ranks_part() -> None:
    engine = engine_after_one_step()
    engine.module.weight.ds_tensor = torch.ones(4)
    tensors = tensors_of(offload(engine, "--offload_model", "true"))
    assert [tuple(tensor.shape) for tensor in tensors] == [(4,), (2,)]
