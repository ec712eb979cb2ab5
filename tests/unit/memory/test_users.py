"""What users told of their jobs comes out as it turned out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.memory import Change, card_bytes, fixes, ledger_of
from grpo_doctor.memory.models import model_shape
from tests.unit.memory.jobs import LARGE, TEXT, TEXT_OWN_CARD, VISION


def knobs(change: Change | None) -> dict[str, Any]:
    assert change is not None
    return {edit.knob: edit.value for edit in change.edits}


def test_two_a800_take_about_70_gb() -> None:
    ledger = ledger_of(VISION)
    assert ledger.state == "fits"
    assert ledger.train.peak.bytes == pytest.approx(70e9, rel=0.05)


def test_four_a6000_stay_under_50_gb() -> None:
    ledger = ledger_of(replace(VISION, card_bytes=card_bytes("A6000"), ranks=4))
    assert ledger.train.peak.bytes < 50e9
    assert ledger.state == "tight"  # too little stays free to promise it


def test_eight_a30_need_zero_3_and_changes_of_the_engine() -> None:
    setup = replace(VISION, card_bytes=card_bytes("A30"), ranks=8)
    assert ledger_of(setup).state == "invalid"
    assert ledger_of(replace(setup, zero_stage=3)).state != "fits"
    change = fixes(setup)
    assert change is not None
    assert knobs(change)["deepspeed.stage"] == 3
    assert "sync.move_model_batches" in knobs(change)
    assert change.ledger.state == "fits"


def test_with_vllm_on_the_fourth_3090_zero_2_may_not_fit_and_zero_3_fits() -> None:
    assert ledger_of(TEXT_OWN_CARD).state == "tight"
    divided = replace(TEXT_OWN_CARD, zero_stage=3)
    assert ledger_of(divided).state == "fits"
    assert ledger_of(replace(divided, ranks=1)).state == "oom"


def test_72b_on_eight_a100_needs_the_sync_in_groups() -> None:
    ledger = ledger_of(LARGE)
    assert ledger.train.peak.name == "sync"
    assert ledger.state == "oom"
    assert knobs(fixes(LARGE)) == {"sync.move_model_batches": 16}


def test_72b_whole_on_every_card_will_not_start() -> None:
    undivided = replace(LARGE, rollout_engine=replace(LARGE.rollout_engine, tensor_parallel=1))
    ledger = ledger_of(undivided)
    assert ledger.state == "invalid"
    assert "its weights and buffers alone need" in ledger.train.refusals[0]
    assert "vllm.tensor_parallel_size" in knobs(fixes(undivided))


def test_gathering_32b_at_once_does_not_fit_on_four_h100() -> None:
    """ms-swift issue 7986: 3.12 gathered everything whatever the flag said."""
    setup = replace(
        LARGE,
        model=model_shape("Qwen/Qwen3-32B"),
        card_bytes=card_bytes("H100-80G"),
        ranks=4,
        rollout_engine=replace(LARGE.rollout_engine, memory_share=0.6, tensor_parallel=2),
    )
    assert ledger_of(setup).state == "oom"
    assert ledger_of(replace(setup, sync_groups=16)).state == "fits"


def test_the_ledger_is_written_in_a_fifth_of_a_second() -> None:
    begin = time.perf_counter()
    ledger_of(LARGE)
    assert time.perf_counter() - begin < 0.2


def test_every_entry_says_its_formula_and_source() -> None:
    for setup in (VISION, TEXT, LARGE):
        for phase in ledger_of(setup).train.phases:
            for entry in phase.components:
                assert entry.formula
                assert entry.source
                assert entry.bytes >= 0
