"""Out of memory: recognised, and told with phase, holdings and options."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")
pytest.importorskip("deepspeed", reason="needs the trainer extra")

from grpo_doctor_trainer.config import TrainerConfig  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.memory import shortage  # noqa: E402
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
    sizes = holdings(run_after_one_step(), parse([], 2), CPU)
    assert sizes["weights"] == sizes["gradients"] == 4_000_000
    assert 8_000_000 <= sizes["optimizer state"] < 8_001_000
    assert sizes["reference"] == 2_000_000
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
    assert "largest tensors: " in message
    assert counted == {"memory/out_of_memory/train": 2.0**60}


@pytest.mark.parametrize(
    ("where", "size", "device", "begins"),
    [
        ("train", "16", "cpu", ["try --per_device_train_batch_size 8 --gradient_accumulation_st"]),
        (
            "logprob",
            "16",
            "cuda",
            ["try --per_device_train_batch_size 8", "run `grpo-doctor"],
        ),
        ("train", "1", "cpu", ["give the job more host memory"]),
        ("rollout", "16", "cuda", ["run `grpo-doctor check -- --model 'my model'`: it names"]),
        ("init", "16", "cpu", ["give the job more host memory"]),
    ],
)
def test_what_helps_is_said(
    where: str, size: str, device: str, begins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["grpo_doctor_trainer", "--model", "my model"])
    config = TrainerConfig(per_device_train_batch_size=int(size))
    lines = shortage._what_helps(where, config, torch.device(device))
    assert len(lines) == len(begins)
    assert all(line.startswith(start) for line, start in zip(lines, begins, strict=True))


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (12, "12 bytes"), (999, "999 bytes"), (1e3, "1.0 kB"), (999_000, "999.0 kB"),
     (1e6, "1.0 MB"), (1e9, "1.0 GB"), (1.5e9, "1.5 GB"), (1e12, "1.0 TB")],
)  # fmt: skip
def test_sizes_are_spelled(size: float, text: str) -> None:
    assert human(size) == text


def explained(error: BaseException, ranks: Ranks = THIRD) -> list[str]:
    """Before anything is built."""
    return str(explain_out_of_memory(error, parse([], 2), ranks, None)).splitlines()


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All tensors that there are, as far as the message can see."""
    tensors: list[Any] = []
    monkeypatch.setattr(gc, "get_objects", lambda: tensors)
    return tensors


def test_before_anything_is_built_there_is_little_to_say(alive: list[Any]) -> None:
    lines = explained(MemoryError("no more"))
    assert lines[0] == "rank 3 ran out of memory in phase init on cpu"
    assert lines[1] == "  it holds nothing that is counted: the models were still being loaded"
    assert lines[2] == "  give the job more host memory, or start fewer ranks"


def test_the_three_largest_tensors_are_named_from_a_megabyte(alive: list[Any]) -> None:
    sizes = (999_999, 1_000_000, 3_000_000)
    alive += [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    alive += [alive[-1].view(1_500, 2_000), torch.zeros(9_000_000, device="meta"), "no tensor"]
    line = "  largest tensors: [1500, 2000] uint8 3.0 MB; [1000000] uint8 1.0 MB"
    assert explained(MemoryError())[2] == line
    alive += [torch.zeros(2, 1_000_000), torch.zeros(5, 1_000_000)]
    assert explained(MemoryError())[2] == (
        "  largest tensors: [5, 1000000] float32 20.0 MB; [2, 1000000] float32 8.0 MB; "
        "[1500, 2000] uint8 3.0 MB"
    )
    del alive[1:]
    assert not any("largest" in line for line in explained(MemoryError()))


@pytest.mark.parametrize(
    ("error", "device"),
    [
        (MemoryError(), "cpu"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "cpu"),
        (RuntimeError("failed to allocate"), "meta"),
        (OSError("Cannot allocate memory"), "meta"),
    ],
)
def test_it_is_the_host_that_is_full_where_the_error_says_so(
    alive: list[Any], error: Exception, device: str
) -> None:
    ranks = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("meta"), threads=1)
    assert explained(error, ranks)[0] == f"rank 0 ran out of memory in phase init on {device}"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("Tried to allocate 2.50 GiB.", "2.7 GB"),
        ("you tried to allocate 4096 bytes.", "4.1 kB"),
        ("Tried to allocate 20.00 MiB", "21.0 MB"),
        ("Tried to allocate much", None),
    ],
)
def test_how_much_was_asked_for_is_said_where_the_error_says_it(
    alive: list[Any], text: str, size: str | None
) -> None:
    line = explained(RuntimeError(text))[0]
    assert line == "rank 3 ran out of memory in phase init on cpu" + (
        f", asking for {size} more" if size else ""
    )


def test_on_a_gpu_its_own_numbers_are_said(
    alive: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1e9, 8e9))
    for number, name in enumerate(
        ("memory_allocated", "memory_reserved", "max_memory_allocated"), start=2
    ):
        monkeypatch.setattr(torch.cuda, name, lambda _, number=number: number * 1e9)
    ranks = Ranks(0, 1, 0, device=torch.device("cuda", 1), threads=1)
    lines = explained(torch.OutOfMemoryError("CUDA out of memory."), ranks)
    assert lines[0].endswith("on cuda:1")
    assert lines[2] == (
        "  the device: allocated 2.0 GB, reserved 3.0 GB, peak allocated 4.0 GB, free 1.0 GB, "
        "total 8.0 GB"
    )


def test_what_is_elsewhere_or_not_there_is_not_held() -> None:
    module = torch.nn.Linear(10, 10, bias=False)
    engine = SimpleNamespace(module=module, optimizer=torch.optim.AdamW(module.parameters()))
    run = cast("Any", SimpleNamespace(engine=engine, reference=None))
    assert holdings(run, parse([], 2), CPU) == {"weights": 400}
    assert holdings(run, parse([], 2), torch.device("meta")) == {}
    module.weight.ds_tensor = torch.ones(5)
    assert holdings(run, parse([], 2), CPU) == {"weights": 20}


def test_copies_of_the_weights_are_state_of_the_optimizer() -> None:
    module = torch.nn.Linear(10, 10, bias=False)
    master = module.weight.detach().clone().requires_grad_()
    inner = torch.optim.AdamW([master])
    master.grad = torch.ones_like(master)
    inner.step()
    engine = SimpleNamespace(module=module, optimizer=SimpleNamespace(optimizer=inner))
    run = cast("Any", SimpleNamespace(engine=engine, reference=None))
    assert holdings(run, parse([], 2), CPU)["optimizer state"] == 3 * 400 + 4


def test_a_colocated_engine_may_hold_its_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1_000)
    )
    run, gpu = run_after_one_step(), torch.device("cuda")
    flags = ("--use_vllm", "true", "--vllm_gpu_memory_utilization", "0.25", "--vllm_mode")
    assert holdings(run, parse([*flags, "colocate"], 2), gpu) == {"vLLM, up to": 250}
    assert holdings(run, parse([*flags, "server"], 2), gpu) == {}
    assert "vLLM, up to" not in holdings(run, parse([*flags, "colocate"], 2), CPU)
