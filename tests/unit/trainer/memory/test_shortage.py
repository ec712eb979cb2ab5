"""Out of memory: recognised, and told with phase, holdings and options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.memory import shortage  # noqa: E402
from grpo_doctor_trainer.memory.advice import advice  # noqa: E402
from grpo_doctor_trainer.memory.shortage import (  # noqa: E402
    explain_out_of_memory,
    holdings,
    human,
    is_out_of_memory,
)
from grpo_doctor_trainer.phases import phase, phase_of  # noqa: E402
from grpo_doctor_trainer.ranks.group import Ranks  # noqa: E402

CPU = torch.device("cpu")
THIRD = Ranks(rank=3, world_size=4, local_rank=3, device=CPU, threads=1)


def a_real_one() -> Exception:
    try:
        torch.empty(2**60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("an exabyte was there")


def run_after_one_step() -> Any:
    module = torch.nn.Linear(1000, 1000, bias=False)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    engine = SimpleNamespace(module=module, optimizer=optimizer)
    return SimpleNamespace(engine=engine, reference=torch.nn.Linear(1000, 500, bias=False))


def test_what_is_out_of_memory() -> None:
    assert is_out_of_memory(a_real_one())
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    assert not is_out_of_memory(KeyError("out of memory"))


def test_the_innermost_phase_is_noted() -> None:
    with pytest.raises(MemoryError) as error, phase("train"), phase("logprob/old"):
        raise MemoryError
    assert phase_of(error.value) == "logprob"
    assert phase_of(MemoryError()) is None


def test_what_the_run_holds_is_counted_by_kind() -> None:
    found = holdings(run_after_one_step(), parse([], 2), CPU)
    assert found["weights"] == found["gradients"] == 4_000_000
    assert 8_000_000 <= found["optimizer state"] < 8_001_000
    assert found["reference"] == 2_000_000
    assert holdings(None, parse([], 2), CPU) == {}


def test_the_message_says_where_what_and_which_option(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: dict[str, float] = {}
    monkeypatch.setattr(shortage, "counter", counted.__setitem__)
    config = parse(["--per_device_train_batch_size", "16"], 2)
    error = a_real_one()
    with pytest.raises(RuntimeError), phase("train"):
        raise error
    message = str(explain_out_of_memory(error, config, THIRD, cast("Any", run_after_one_step())))
    assert message.startswith(
        "rank 3 ran out of memory in phase train on cpu, asking for 1152921.5 TB more\n"
    )
    assert "it holds weights 4.0 MB, gradients 4.0 MB, optimizer state 8.0 MB" in message
    assert "try --per_device_train_batch_size 8 --gradient_accumulation_steps 2" in message
    assert "try --gradient_checkpointing true" in message
    assert "largest tensors: " in message
    assert counted == {"memory/out_of_memory/train": 2.0**60}


@pytest.mark.parametrize(
    ("where", "flags", "option"),
    [
        ("init", "", "--deepspeed zero3"),
        ("rollout", "", "--max_completion_length below 8"),
        ("rollout", "--use_vllm true", "--vllm_gpu_memory_utilization below 0.02"),
        ("logprob", "", "--beta 0"),
        ("optimizer", "", "--train_type lora"),
        ("optimizer", "--deepspeed none", "--deepspeed zero2"),
        ("sync", "--use_vllm true", "--move_model_batches above 1"),
        ("offload", "--use_vllm true", "--sleep_level 1"),
        ("checkpoint", "", "--save_only_model true"),
        ("dataload", "", "--dataloader_num_workers below 1"),
    ],
)
def test_each_phase_has_its_option(where: str, flags: str, option: str) -> None:
    assert any(line.startswith(option) or option in line for line in advice(
        where, parse(flags.split(), 2)))  # fmt: skip


def test_what_is_set_already_is_not_advised() -> None:
    flags = ["--offload_model", "true", "--offload_optimizer", "true"]
    assert not any("--offload" in line for line in advice("rollout", parse(flags, 2)))


@pytest.mark.parametrize(("size", "text"), [(12, "12 bytes"), (1.5e9, "1.5 GB")])
def test_sizes_are_spelled(size: float, text: str) -> None:
    assert human(size) == text
