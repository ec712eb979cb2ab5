"""Experiment trackers, on rank 0, by accelerate: TensorBoard, Weights & Biases, SwanLab."""

from __future__ import annotations

import dataclasses
import difflib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.logs.console import LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from accelerate.tracking import GeneralTracker

    from grpo_doctor_trainer.config import TrainerConfig

TRACKERS = ("tensorboard", "wandb", "swanlab")
_NONE = "none"
_PROJECT = "grpo-doctor"
_PREFIX = "train/"  # as transformers' integrations write it, so that curves of both lie together


class Trackers:
    """All trackers of a run. One that fails is given up with a warning: training goes on."""

    def __init__(self, trackers: Mapping[str, GeneralTracker]) -> None:
        self._trackers = dict(trackers)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Sends the metrics of one step, under transformers' prefix."""
        prefixed = {f"{_PREFIX}{name}": value for name, value in values.items()}
        self._each("took no more metrics", lambda tracker: tracker.log(prefixed, number))

    def close(self) -> None:
        """Ends all of them. Can be called twice."""
        self._each("could not finish", lambda tracker: tracker.finish())
        self._trackers = {}

    def _each(self, failure: str, act: Callable[[GeneralTracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training goes on
                del self._trackers[name]
                LOG.warning("%s %s (%s: %s)", name, failure, type(error).__name__, error)


def wanted_trackers(config: TrainerConfig) -> list[str]:
    """Gives the names in `--report_to`, each once; ms-swift's `none` is no tracker."""
    return [name for name in dict.fromkeys(config.report_to) if name.lower() != _NONE]


def check_trackers(config: TrainerConfig) -> None:
    """Looks whether each tracker of `--report_to` exists and is installed.

    Raises:
        ConfigError: names the one that is not.
    """
    for name in wanted_trackers(config):
        if name not in TRACKERS:
            close = difflib.get_close_matches(name.lower(), TRACKERS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(
                f"--report_to {name} is not one of {', '.join(TRACKERS)}, {_NONE}{hint}"
            )
        if find_spec(name) is None:
            raise ConfigError(
                f"--report_to {name}: the package {name} is not installed; pip install {name}, or "
                "leave it out of --report_to"
            )


def make_trackers(config: TrainerConfig, steps_done: int = 0) -> Trackers:
    """Starts what `--report_to` names; `check_trackers` has found their packages.

    After a checkpoint of so many steps, TensorBoard's curves go on from there: what a run wrote
    behind it before it ended is taken back.

    One that cannot start (no login, no network, a folder that cannot be written) is left out with
    a warning.
    """
    started: dict[str, GeneralTracker] = {}
    for name in wanted_trackers(config):
        try:
            tracker = _tracker(name, config, steps_done)
            tracker.start()
            if name == "tensorboard":  # its hyperparameters would be a run of their own
                options = (f"    {n}: {v}" for n, v in dataclasses.asdict(config).items())
                tracker.tracker.add_text("args", "\n".join(options))
            else:
                tracker.store_init_configuration(dataclasses.asdict(config))
            started[name] = tracker
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training goes on
            LOG.warning("--report_to %s: no tracking (%s: %s)", name, type(error).__name__, error)
    return Trackers(started)


def _tracker(name: str, config: TrainerConfig, steps_done: int) -> GeneralTracker:
    from accelerate import tracking  # noqa: PLC0415 - flags are checked without torch

    folder = Path(config.output_dir)
    if name == "tensorboard":
        logs = Path(config.logging_dir or folder / "runs")
        purge_step = steps_done + 1 if steps_done else None
        return tracking.TensorBoardTracker(config.run_name or "", logs, purge_step=purge_step)
    folder.mkdir(parents=True, exist_ok=True)
    if name == "wandb":
        return tracking.WandBTracker(None, name=config.run_name, dir=str(folder))
    logs = folder / "swanlab"
    return tracking.SwanLabTracker(_PROJECT, experiment_name=config.run_name, logdir=str(logs))
