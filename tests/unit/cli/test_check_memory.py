"""The ledger of a launch, where the machine is known."""

from __future__ import annotations

import pytest

from grpo_doctor.cli.check_memory import MemoryCheck, Wanted
from grpo_doctor.launches import read

LAUNCH = read(
    ["NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B-Instruct"],
    environment={},
    versions={"ms-swift": "4.6.0"},
)
GIB = 2**30


def of(gpus: int | None, card_bytes: int | None, unknown: str | None = None) -> MemoryCheck:
    wanted = Wanted(gpus, None, card_bytes, None, None, None, here=False)
    return MemoryCheck(LAUNCH, wanted, unknown)


@pytest.mark.parametrize(
    ("gpus", "card_bytes", "known"),
    [(8, 80 * GIB, True), (None, 80 * GIB, False), (8, None, False), (None, None, False)],
)
def test_number_and_size_of_the_gpus_are_both_needed(
    gpus: int | None, card_bytes: int | None, known: bool
) -> None:
    memory = of(gpus, card_bytes)
    assert (memory.ledger is not None) is known
    assert (memory.part is not None) is known
    asks = "memory not estimated: say the GPUs, as in --gpus 8xA100-80G"
    assert memory.reason == (None if known else asks)
    assert (memory.state == "unknown") is not known


def test_why_the_model_is_not_known_comes_first() -> None:
    assert of(None, None, "there is no model").reason == "memory not estimated: there is no model"


@pytest.mark.parametrize(
    ("said", "here", "bytes_"),
    [
        (None, False, []),
        (64 * GIB, False, [64 * GIB]),
        (None, True, [512 * GIB]),
        (64 * GIB, True, [64 * GIB]),
    ],
)
def test_the_memory_of_the_host_is_what_was_said_or_that_of_this_machine(
    said: int | None, here: bool, bytes_: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.check_memory._memory_here", lambda: 512 * GIB)
    wanted = Wanted(8, None, 80 * GIB, None, None, said, here=here)
    part = MemoryCheck(LAUNCH, wanted, None).part
    assert part is not None
    assert [pool.capacity_bytes for pool in part.pools if pool.role == "host"] == bytes_
