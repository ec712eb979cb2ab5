"""Trackers: names, packages, and TensorBoard's files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorboard", reason="needs the dev extra")

from accelerate import Accelerator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from grpo_doctor_trainer import validation
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.logs.console import set_up_console
from grpo_doctor_trainer.logs.steplog import start_trackers


def test_unknown_and_missing_trackers_are_named_before_anything_loads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="is not one of tensorboard, wandb, swanlab, none"):
        parse(["--report_to", "tensorbord"], 2)
    monkeypatch.setattr(validation, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        parse(["--report_to", "wandb"], 2)
    assert parse(["--report_to", "none"], 2).report_to == []


def accelerator(folder: Path) -> Accelerator:
    return Accelerator(cpu=True, log_with=["tensorboard"], project_dir=str(folder))


def test_after_a_checkpoint_the_curves_continue_and_what_came_after_it_is_removed(
    tmp_path: Path,
) -> None:
    config = parse(["--report_to", "tensorboard"], 1)
    for steps_done, numbers in ((0, range(1, 6)), (3, range(4, 5))):
        tracking = start_trackers(accelerator(tmp_path), config, steps_done)
        assert tracking is not None
        for number in numbers:
            tracking.log({"train/loss": float(number)}, step=number)
        for tracker in tracking.trackers:
            tracker.finish()
    events = EventAccumulator(str(tmp_path / "grpo-doctor"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


def test_a_run_whose_trackers_cannot_start_goes_on_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_console(0)
    (tmp_path / "file").touch()
    config = parse(["--report_to", "tensorboard"], 1)
    assert start_trackers(accelerator(tmp_path / "file" / "runs"), config, 0) is None
    assert "--report_to: no tracking (" in capsys.readouterr().out
