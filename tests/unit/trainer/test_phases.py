"""Phases within phases, and the innermost one that an error left."""

from __future__ import annotations

import pytest

from grpo_doctor_trainer.phases import phase, phase_of, within


def where(*names: str) -> str | None:
    """The phase that is noted where an error leaves through all of these, outermost first."""
    error = KeyError()
    for name in reversed(names):
        with pytest.raises(KeyError), phase(name):
            raise error
    return phase_of(error)


def test_the_innermost_phase_counts_by_its_first_part() -> None:
    assert where("train", "logprob/old") == "logprob"
    assert where("reward/mine") == "reward"
    assert where() is None


def test_phases_within_another_are_its_parts() -> None:
    with pytest.raises(KeyError) as inside, within("eval"), phase("reward/mine"):
        raise KeyError
    assert phase_of(inside.value) == "eval"
    assert where("reward") == "reward"  # and no longer, after it


def test_what_ends_well_notes_nothing() -> None:
    error = KeyError()
    with phase("train"):
        pass
    assert phase_of(error) is None
