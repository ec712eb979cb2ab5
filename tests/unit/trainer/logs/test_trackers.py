"""Trackers: names, packages, TensorBoard's files, and one that fails."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer import validation as trackers_module
from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.logs.console import set_up_console
from grpo_doctor_trainer.logs.steplog import Trackers, make_trackers
from grpo_doctor_trainer.validation import wanted_trackers


def message_of(*flags: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse(flags, 2)
    return str(error.value)


def test_an_unknown_tracker_gets_the_nearest_name() -> None:
    message = message_of("--report_to", "tensorbord")
    assert "is not one of tensorboard, wandb, swanlab, none; did you mean tensorboard?" in message


def test_a_missing_package_is_told_before_anything_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers_module, "find_spec", lambda _name: None)
    assert "pip install wandb" in message_of("--report_to", "wandb")


def test_none_is_none() -> None:
    assert wanted_trackers(parse(["--report_to", "none"], 2)) == []


def test_tensorboard_gets_every_metric_with_its_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the dev extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    flags = ("--report_to", "tensorboard", "--output_dir", str(tmp_path), "--run_name", "first")
    trackers = make_trackers(parse(flags, 2))
    for number in (1, 2):
        trackers.log(number, {"loss": 0.5 * number, "rewards/accuracy/mean": 1.0})
    trackers.close()
    trackers.close()
    events = EventAccumulator(str(tmp_path / "runs" / "first"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"train/loss", "train/rewards/accuracy/mean"}
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 0.5), (2, 1.0)]


class Broken:
    """A tracker whose connection is gone."""

    def __init__(self) -> None:
        self.calls = 0

    def log(self, values: object, step: int) -> None:
        self.calls += 1
        raise ConnectionError("no route to host")

    def finish(self) -> None:
        self.calls += 1


def test_a_tracker_that_fails_is_given_up_with_one_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_console(0)
    broken: Any = Broken()
    trackers = Trackers({"wandb": broken})
    for number in (1, 2):
        trackers.log(number, {"loss": 0.0})
    trackers.close()
    assert broken.calls == 1
    printed = capsys.readouterr().out
    assert printed == "wandb took no more metrics (ConnectionError: no route to host)\n"


@pytest.mark.parametrize("name", ["wandb", "swanlab"])
def test_the_online_ones_run_offline(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    trackers = make_trackers(parse(["--report_to", name, "--output_dir", str(tmp_path)], 2))
    assert list(trackers._trackers) == [name]
    trackers.log(1, {"loss": 0.5})
    assert list(trackers._trackers) == [name]
    trackers.close()


def test_after_a_checkpoint_the_curves_go_on_and_what_came_behind_it_is_taken_back(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorboard", reason="needs the dev extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    flags = ("--report_to", "tensorboard", "--logging_dir", str(tmp_path))
    for steps_done, numbers in ((0, range(1, 6)), (3, range(4, 5))):
        trackers = make_trackers(parse(flags, 2), steps_done)
        for number in numbers:
            trackers.log(number, {"loss": float(number)})
        trackers.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["none", "None", "NONE"])
def test_none_beside_others_is_left_out(name: str) -> None:
    config = parse(["--report_to", name, "tensorboard", "tensorboard"], 2)
    assert wanted_trackers(config) == ["tensorboard"]


def test_a_name_like_none_of_them_has_no_hint() -> None:
    assert message_of("--report_to", "qqq").endswith("wandb, swanlab, none")


def test_one_that_cannot_start_is_left_out_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_console(0)
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "runs")
    trackers = make_trackers(parse(["--report_to", "tensorboard", "--logging_dir", folder], 2))
    assert "--report_to tensorboard: no tracking (" in capsys.readouterr().out
    trackers.log(1, {"loss": 0.0})
