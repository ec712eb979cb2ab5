"""The ledger beside what was measured, and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.memory import GIB, Setup, ledger_of
from grpo_doctor.memory.anchor import LOADED, Addition, Anchor, Held, anchor, with_rows_of
from tests.unit.memory.jobs import TEXT, VISION

PLAIN = replace(TEXT, engine="torch", zero_stage=0, ranks=1, rollout="generate", method="full")


def anchored(setup: Setup, *readings: tuple[str, float]) -> Anchor:
    return anchor(setup, [Held(phase, size * GIB) for phase, size in readings])


def test_a_phase_adds_what_was_not_there_before() -> None:
    measured = anchored(
        PLAIN, (LOADED, 16.0), ("rollout", 17.0), ("train", 40.0), ("optimizer", 70.0)
    )
    entries = {addition.phase: addition.entries for addition in measured.additions}
    assert entries[LOADED] == ("trained weights", "CUDA context")
    assert entries["rollout"] == ("generation cache",)
    assert set(entries["train"]) >= {"gradients", "logits and loss"}
    assert set(entries["optimizer"]) == {"optimizer moments"}
    assert [addition.measured_bytes // GIB for addition in measured.additions] == [16, 1, 23, 30]


def test_deepspeed_has_its_states_before_the_first_step() -> None:
    measured = anchored(replace(TEXT, rollout="server"), (LOADED, 20.0), ("train", 30.0))
    assert "optimizer moments" in measured.additions[0].entries
    assert "gradients" in measured.additions[1].entries


def test_nothing_changed_takes_what_was_measured() -> None:
    measured = anchored(PLAIN, (LOADED, 16.0), ("train", 40.0), ("optimizer", 70.0))
    assert measured.bytes(PLAIN) == measured.measured_bytes == 70 * GIB


def test_a_prediction_is_that_far_off_for_other_settings_too() -> None:
    larger = replace(PLAIN, micro_batch=2 * PLAIN.micro_batch)
    usual = anchored(PLAIN, (LOADED, 16.0), ("train", 40.0))
    predicted = usual.additions[1].predicted_bytes / GIB
    exact = anchored(PLAIN, (LOADED, 16.0), ("train", 16.0 + predicted))
    twice = anchored(PLAIN, (LOADED, 16.0), ("train", 16.0 + 2 * predicted))
    grown = exact.bytes(larger) - exact.measured_bytes
    before, after = (ledger_of(setup).train.phases[0].bytes for setup in (PLAIN, larger))
    assert grown == pytest.approx(after - before, rel=0.01)
    assert twice.bytes(larger) - twice.measured_bytes == pytest.approx(2 * grown, rel=0.01)


def test_an_addition_that_no_sample_shows_keeps_the_ledgers_size() -> None:
    hidden = anchored(PLAIN, (LOADED, 16.0), ("train", 16.0))
    assert hidden.additions[1].ratio == 1.0
    assert hidden.bytes(replace(PLAIN, micro_batch=8)) > hidden.measured_bytes


def test_phases_that_the_ledger_lacks_are_left_out() -> None:
    measured = anchored(PLAIN, (LOADED, 16.0), ("reward", 18.0), ("train", 40.0))
    assert [addition.phase for addition in measured.additions] == [LOADED, "train"]
    assert measured.additions[1].measured_bytes == 24 * GIB


def test_a_colocated_engine_has_deepspeeds_states_beside_it_at_the_start() -> None:
    measured = anchored(VISION, (LOADED, 60.0), ("rollout", 60.0), ("train", 66.0))
    assert {"engine weights", "optimizer moments"} <= set(measured.additions[0].entries)
    assert measured.additions[1].predicted_bytes == 0
    plain = replace(VISION, engine="torch", zero_stage=0)
    alone = anchored(plain, (LOADED, 60.0), ("train", 66.0))
    assert "engine weights" in alone.additions[0].entries
    assert "optimizer moments" not in alone.additions[0].entries


def test_entries_are_told_by_size_and_an_optimizer_is_new_in_its_own_step() -> None:
    measured = anchored(
        PLAIN, (LOADED, 16.0), ("train", 40.0), ("optimizer", 70.0), ("train", 71.0)
    )
    phases = [addition.phase for addition in measured.additions]
    assert phases == [LOADED, "train", "optimizer", "train"]
    assert "optimizer moments" not in measured.additions[1].entries
    assert measured.additions[2].entries == ("optimizer moments",)
    again = measured.additions[3]
    assert "optimizer moments" in again.entries
    assert again.predicted_bytes > 0
    ledger = {
        entry.name: entry.bytes
        for phase in ledger_of(PLAIN).train.phases
        for entry in phase.components
    }
    sizes = [ledger[name] for name in measured.additions[1].entries]
    assert sizes == sorted(sizes, reverse=True)


def test_a_peak_that_fell_again_adds_nothing() -> None:
    measured = anchored(PLAIN, (LOADED, 16.0), ("train", 40.0), ("optimizer", 30.0))
    assert [addition.measured_bytes // GIB for addition in measured.additions] == [16, 24, 0]
    assert measured.measured_bytes == 40 * GIB


@pytest.mark.parametrize(("mib", "ratio"), [(64, 0.5), (63, 1.0)])
def test_below_64_mib_a_ratio_says_nothing(mib: int, ratio: float) -> None:
    addition = Addition("train", (), 128 << 20 if mib == 64 else 126 << 20, mib << 20)
    assert addition.ratio == ratio
    swapped = Addition("train", (), addition.measured_bytes, addition.predicted_bytes)
    assert swapped.ratio == 1 / ratio


def test_the_predicted_interval_is_as_wide_as_the_ledgers() -> None:
    measured = anchored(PLAIN, (LOADED, 16.0), ("train", 40.0), ("optimizer", 70.0))
    usual, predicted = ledger_of(PLAIN).train.peak.interval, measured.predicted
    assert predicted.middle == sum(addition.predicted_bytes for addition in measured.additions)
    assert predicted.low / predicted.middle == pytest.approx(usual.low / usual.middle)
    assert predicted.high / predicted.middle == pytest.approx(usual.high / usual.middle)


@pytest.mark.parametrize(
    ("tokens", "prompt", "completion"),
    [(1025, 1, 1024), (1024, 1, 1023), (2, 1, 1), (1, 1, 1), (3000, 1976, 1024)],
)
def test_of_a_row_the_completion_has_its_place_and_the_prompt_the_rest(
    tokens: int, prompt: int, completion: int
) -> None:
    rows = with_rows_of(replace(PLAIN, padding_free=True), tokens)
    assert (rows.prompt_tokens, rows.completion_tokens) == (prompt, completion)
    assert not rows.padding_free
