from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.memory import (
    GIB,
    Component,
    Phase,
    Pool,
    Setup,
    card_bytes,
    ledger_of,
    model_shape,
)

SEVEN = model_shape("Qwen/Qwen2.5-7B")
P = SEVEN.parameters
FULL = Setup(SEVEN, card_bytes("A100-80G"), ranks=4, prompt_tokens=2048, packing=True)


def entries(setup: Setup, phase: str = "train") -> dict[str, int]:
    chosen = next(p for p in ledger_of(setup).train.phases if p.name == phase)
    return {entry.name: entry.bytes for entry in chosen.components}


def test_lora_trains_its_adapters_alone() -> None:
    lora = replace(FULL, ranks=1, method="lora", lora_rank=8)
    adapters = entries(lora)["trained weights"] / 4
    assert adapters == 20_185_088  # what PEFT counts for r=8 on all linear layers
    assert entries(lora)["frozen weights"] == 2 * P


@pytest.mark.parametrize(
    ("gib", "spread", "spare", "state"),
    [
        (60, 0.1, 0, "fits"),
        (74, 0.0, 0, "fits"),
        (60, 0.3, 0, "tight"),  # 41 to 88 of 80 GiB
        (90, 0.3, 0, "tight"),
        (90, 0.05, 0, "oom"),
        (90, 0.05, 20, "tight"),  # 90 GiB with room, 70 at the least
    ],
)
def test_yes_and_no_are_said_only_where_the_whole_interval_is_on_one_side(
    gib: int, spread: float, spare: int, state: str
) -> None:
    entry = Component("weights", gib * GIB, "", "", None, spread, spare * GIB)
    pool = Pool("train", 80 * GIB, (Phase("train", (entry,)), Phase("init", ())))
    low, high = pool.decisive.interval.low, pool.decisive.interval.high
    assert pool.state == state
    assert (high <= 80 * GIB, low > 80 * GIB) == (state == "fits", state == "oom")


@pytest.mark.parametrize(("phase", "state"), [("train", "tight"), ("rollout", "fits")])
def test_a_card_that_is_almost_full_is_promised_only_to_an_engine(phase: str, state: str) -> None:
    entry = Component("weights", 75 * GIB, "", "", None, 0.0)
    assert Pool("train", 80 * GIB, (Phase(phase, (entry,)),)).state == state


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("A100-80G", 79.2),
        ("A100-40G", 39.4),
        ("NVIDIA A100-SXM4-40GB", 39.4),
        ("H20", 95.0),
        ("NVIDIA H200", 139.7),
        ("RTX 3090", 23.7),
        ("RTX3090-24G", 23.7),
        ("A100", 79.2),
        ("A100-70G", 79.2),  # within an eighth of a card's size it is that card
        ("A100-60G", 60 * 0.985),
        ("A100_80GB", 79.2),
        ("V100-16G", 15.8),
        ("V100", 31.7),
        ("L40S", 44.4),
        ("L4", 22.2),
        ("24", None),
        ("Frobnicator 9000", None),
        ("7.5 GiB", 7.5 * 0.985),
        ("48G", 48 * 0.985),
    ],
)
def test_cards_by_name_and_size(name: str, gib: float | None) -> None:
    if gib is None:
        with pytest.raises(UsageError, match="or its memory, --gpus 8x80G"):
            card_bytes(name)
    else:
        assert card_bytes(name) / GIB == pytest.approx(gib, rel=1e-3)


def test_ddp_copies_gradients_into_buckets() -> None:
    """TRL issue 2972: step 1 fits on 96 GB, the optimizer of step 2 does not."""
    setup = replace(FULL, card_bytes=card_bytes("H20"), ranks=8, reference=True,
                    optimizer="adamw_foreach", packing=False, completion_tokens=1024)  # fmt: skip
    assert entries(setup)["DDP buckets"] == 2 * P
    assert ledger_of(setup).state == "oom"
    assert "DDP buckets" not in entries(replace(setup, ranks=1))
