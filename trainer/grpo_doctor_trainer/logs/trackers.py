"""Experiment trackers, on rank 0: TensorBoard, Weights & Biases, SwanLab."""

from __future__ import annotations

import dataclasses
import difflib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from grpo_doctor_trainer.errors import ConfigError
from grpo_doctor_trainer.logs.console import LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from grpo_doctor_trainer.config import TrainerConfig

TRACKERS = ("tensorboard", "wandb", "swanlab")
_NONE = "none"
_PROJECT = "grpo-doctor"
_PREFIX = "train/"  # as transformers' integrations write it, so that curves of both lie together


class Tracker(Protocol):
    """One place to send metrics to."""

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Sends the metrics of one step."""

    def close(self) -> None:
        """Sends what is left."""


class Trackers:
    """All trackers of a run. One that fails is given up with a warning: training goes on."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Sends the metrics of one step, under transformers' prefix."""
        prefixed = {f"{_PREFIX}{name}": value for name, value in values.items()}
        self._each("took no more metrics", lambda tracker: tracker.log(number, prefixed))

    def close(self) -> None:
        """Ends all of them. Can be called twice."""
        self._each("could not finish", lambda tracker: tracker.close())
        self._trackers = {}

    def _each(self, failure: str, act: Callable[[Tracker], None]) -> None:
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
    makers: dict[str, Callable[[TrainerConfig], Tracker]] = {
        "tensorboard": lambda config: _TensorBoard(config, steps_done),
        "wandb": _Wandb,
        "swanlab": _SwanLab,
    }
    started: dict[str, Tracker] = {}
    for name in wanted_trackers(config):
        try:
            started[name] = makers[name](config)
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, training goes on
            LOG.warning("--report_to %s: no tracking (%s: %s)", name, type(error).__name__, error)
    return Trackers(started)


class _TensorBoard:
    def __init__(self, config: TrainerConfig, steps_done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional

        folder = Path(config.logging_dir or Path(config.output_dir) / "runs")
        folder = folder / config.run_name if config.run_name else folder
        self._writer: Any = SummaryWriter(folder, purge_step=steps_done + 1 if steps_done else None)
        lines = (f"    {name}: {value}" for name, value in dataclasses.asdict(config).items())
        self._writer.add_text("args", "\n".join(lines))

    def log(self, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    def __init__(self, config: TrainerConfig) -> None:
        import wandb  # noqa: PLC0415 - optional

        self._run: Any = wandb.init(
            name=config.run_name, dir=_folder(config), config=dataclasses.asdict(config)
        )
        self._run.define_metric(f"{_PREFIX}*", step_metric=f"{_PREFIX}global_step")

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, f"{_PREFIX}global_step": number})

    def close(self) -> None:
        self._run.finish()


class _SwanLab:
    def __init__(self, config: TrainerConfig) -> None:
        import swanlab  # noqa: PLC0415 - optional

        self._run: Any = swanlab.init(
            project=_PROJECT,
            experiment_name=config.run_name,
            logdir=str(Path(_folder(config)) / "swanlab"),
            config=dataclasses.asdict(config),
        )

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=number)

    def close(self) -> None:
        import swanlab  # noqa: PLC0415 - optional

        swanlab.finish()


def _folder(config: TrainerConfig) -> str:
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)
