"""Out of memory: recognised, and told with phase, holdings and options."""

from __future__ import annotations

import pytest
import torch

import grpo_doctor_trainer.memory as shortage
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.memory import explain_out_of_memory, is_out_of_memory
from grpo_doctor_trainer.phases import phase, phase_of
from grpo_doctor_trainer.ranks import Ranks

CPU = torch.device("cpu")
THIRD = Ranks(rank=3, world_size=4, local_rank=3, device=CPU, threads=1)


def a_real_one() -> Exception:
    try:
        torch.empty(2**60, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    raise AssertionError("an exabyte was there")


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


def test_the_message_says_where_what_and_which_option(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: dict[str, float] = {}
    monkeypatch.setattr(shortage, "counter", counted.__setitem__)
    config = parse(["--per_device_train_batch_size", "16"], 2)
    error = a_real_one()
    with pytest.raises(RuntimeError), phase("train"):
        raise error
    message = str(explain_out_of_memory(error, config, THIRD))
    assert message.startswith(
        f"rank 3 ran out of memory in phase train on cpu, asking for {2**60} bytes more\n"
    )
    assert "try --per_device_train_batch_size 8 --gradient_accumulation_steps 2" in message
    assert counted == {"memory/out_of_memory/train": 2.0**60}


@pytest.mark.parametrize(
    ("where", "size", "device", "begins"),
    [
        ("train", "16", "cpu", ["try --per_device_train_batch_size 8 --gradient_accumulation_st"]),
        (
            "logprob",
            "16",
            "cuda",
            ["try --per_device_train_batch_size 8", "1.0 of 8.0 GiB are free", "run `grpo-doctor"],
        ),
        ("train", "1", "cpu", ["give the job more host memory"]),
        (
            "rollout",
            "16",
            "cuda",
            ["1.0 of 8.0 GiB", "run `grpo-doctor check -- --model 'my model'`: it"],
        ),
        ("init", "16", "cpu", ["give the job more host memory"]),
    ],
)
def test_what_helps_is_said(
    where: str, size: str, device: str, begins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["grpo_doctor_trainer", "--model", "my model"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**30, 2**33))
    config = TrainerConfig(per_device_train_batch_size=int(size))
    ranks = Ranks(0, 1, 0, device=torch.device(device), threads=1)
    with pytest.raises(RuntimeError) as error, phase(where):
        raise RuntimeError("CUDA out of memory")
    _, *lines = str(explain_out_of_memory(error.value, config, ranks)).splitlines()
    assert len(lines) == len(begins)
    assert all(line[2:].startswith(start) for line, start in zip(lines, begins, strict=True))


def explained(error: BaseException, ranks: Ranks = THIRD) -> list[str]:
    """Before anything is built."""
    return str(explain_out_of_memory(error, parse([], 2), ranks)).splitlines()


@pytest.mark.parametrize(
    ("error", "device"),
    [
        (MemoryError(), "cpu"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "cpu"),
        (RuntimeError("failed to allocate"), "meta"),
        (OSError("Cannot allocate memory"), "meta"),
    ],
)
def test_it_is_the_host_that_is_full_where_the_error_says_so(error: Exception, device: str) -> None:
    ranks = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("meta"), threads=1)
    assert explained(error, ranks)[0] == f"rank 0 ran out of memory in phase init on {device}"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Tried to allocate 2.50 GiB.", "2.50 GiB"),
        ("you tried to allocate 4096 bytes.", "4096 bytes"),
        ("Tried to allocate 20.00 MiB", "20.00 MiB"),
        ("Tried to allocate much", None),
    ],
)
def test_how_much_was_asked_for_is_said_where_the_error_says_it(
    text: str, size: str | None
) -> None:
    line = explained(RuntimeError(text))[0]
    assert line == "rank 3 ran out of memory in phase init on cpu" + (
        f", asking for {size} more" if size else ""
    )
