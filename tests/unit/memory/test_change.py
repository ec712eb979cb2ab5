from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.errors import UsageError
from grpo_doctor.knobs import KNOBS
from grpo_doctor.memory import fixes, ledger_of, relief, room, solve
from grpo_doctor.memory.edits import SOLVABLE, apply, relieving, spending
from tests.unit.memory.jobs import LARGE, TEXT, VISION


def test_every_edit_is_a_knob_that_exists() -> None:
    names = {knob.name for knob in KNOBS}
    full = replace(TEXT, method="full", reference=True, recompute="none")
    for setup in (TEXT, VISION, LARGE, full):
        for edit in (*relieving(setup), *spending(setup)):
            assert edit.knob in names
            assert edit.cost
            apply(setup, edit.knob, edit.value)
    assert set(SOLVABLE) <= names


def test_what_fits_needs_no_fix() -> None:
    assert fixes(replace(LARGE, sync_groups=16)) is None


def test_a_fix_leaves_out_what_the_framework_lacks() -> None:
    change = fixes(TEXT, allowed=lambda edit: edit.knob != "train.use_liger")
    assert change is not None
    assert "train.use_liger" not in {edit.knob for edit in change.edits}


def test_another_experiment_is_the_last_resort() -> None:
    full = replace(LARGE, method="full", engine="torch", zero_stage=0, reference=True)
    change = fixes(full)
    assert change is not None
    assert {edit.experiment for edit in change.edits} == {"same"}
    alone = fixes(replace(full, ranks=1, rollout="generate", card_bytes=full.card_bytes // 2))
    assert alone is None or "another" in {edit.experiment for edit in alone.edits}


def test_no_fix_where_nothing_helps() -> None:
    assert fixes(replace(LARGE, card_bytes=LARGE.card_bytes // 40)) is None


def test_relief_is_sorted_by_what_it_saves() -> None:
    for setup in (LARGE, TEXT, VISION):
        changes = relief(setup)
        saved = [change.saved_bytes for change in changes]
        assert saved == sorted(saved, reverse=True)
        assert len({change.edits[0].knob for change in changes}) == len(changes)
        # What decides may be another phase than the largest.
        before = ledger_of(setup).train.decisive.bytes
        assert saved == [before - change.ledger.train.decisive.bytes for change in changes]
    assert relief(LARGE)[0].edits[0].knob == "sync.move_model_batches"


def test_room_is_spent_on_time() -> None:
    roomy = replace(LARGE, sync_groups=64, offload_optimizer=True)
    changes = room(roomy)
    assert changes
    assert all(change.ledger.state == "fits" for change in changes)
    assert room(TEXT) == []


@pytest.mark.parametrize("knob", ["train.micro_batch", "rollout.max_completion_length"])
def test_the_largest_value_fits_and_the_next_does_not(knob: str) -> None:
    setup = replace(LARGE, sync_groups=16)
    value = solve(setup, knob)
    assert value is not None
    larger = next(candidate for candidate in SOLVABLE[knob] if candidate > value)
    assert ledger_of(apply(setup, knob, value)).state == "fits"
    assert ledger_of(apply(setup, knob, larger)).state != "fits"


def test_no_value_where_none_fits() -> None:
    assert solve(TEXT, "train.lora_rank") is None


def test_a_knob_without_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="no largest value"):
        solve(TEXT, "rollout.temperature")
