"""Flags are checked for as many ranks as the launcher has, in one message."""

from __future__ import annotations

import sys

import pytest

from grpo_doctor_trainer import flags

SIZES = ("--per_device_train_batch_size", "4", "--num_generations", "8")


@pytest.mark.parametrize(("ranks", "code"), [("2", 0), (None, 2), ("1", 2)])
def test_what_fits_two_ranks_may_not_fit_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ranks: str | None,
    code: int,
) -> None:  # fmt: skip
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if ranks is not None:
        monkeypatch.setenv("WORLD_SIZE", ranks)
    monkeypatch.setattr(sys, "argv", ["check", *SIZES, "--steps_per_generation", "1"])
    assert flags.main() == code
    errors = capsys.readouterr().err
    if code == 0:
        assert errors == ""
    else:
        assert errors.startswith("error: --num_generations 8 must divide the generation batch of 4")
