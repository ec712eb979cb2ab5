"""Finds reward functions by name or in the user's files."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.accuracy import accuracy
from grpo_doctor_trainer.rewards.layout import think_then_answer
from grpo_doctor_trainer.tasks.arithmetic import arithmetic_reward

if TYPE_CHECKING:
    from collections.abc import Callable

BUILT_IN: dict[str, Callable[..., Any]] = {
    "accuracy": accuracy,
    "format": think_then_answer,
    "arithmetic": arithmetic_reward,
}
_ALWAYS_THERE = ("completions", "prompts", "completion_ids")


@dataclass(frozen=True)
class RewardFunction:
    """A function that scores completions.

    Attributes:
        name: what logs and spans call it.
        source: how the user asked for it.
        columns: the columns it takes; none: every column there is.
        call: `call(completions=[...], **columns)` gives one number or None per completion.
    """

    name: str
    source: str
    columns: tuple[str, ...] | None
    call: Callable[..., Any]


def find_rewards(sources: list[str], dataset_columns: set[str]) -> list[RewardFunction]:
    """Finds every function and checks that the dataset has the columns it needs.

    Raises:
        RewardError: names the function and what is missing.
    """
    found: list[RewardFunction] = []
    for source in sources:
        call = BUILT_IN.get(source) or _from_file(source)
        name = source if source in BUILT_IN else source.rpartition(":")[2]
        if any(other.name == name for other in found):
            name = f"{name}_{len(found)}"
        found.append(RewardFunction(name, source, _columns(call, source, dataset_columns), call))
    return found


def _columns(call: Callable[..., Any], source: str, available: set[str]) -> tuple[str, ...] | None:
    parameters = inspect.signature(call).parameters.values()
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in _ALWAYS_THERE
    ]
    missing = [name for name in needed if name not in available]
    if missing:
        raise RewardError(
            f"--reward_funcs {source} needs the column {' and '.join(missing)}, which the dataset "
            f"does not have; columns there: {', '.join(sorted(available)) or 'only the prompt'}"
        )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return tuple(parameter.name for parameter in parameters)


def _from_file(source: str) -> Callable[..., Any]:
    file, mark, name = source.rpartition(":")
    if not mark:
        raise RewardError(
            f"--reward_funcs {source} is neither one of {', '.join(BUILT_IN)} nor "
            "path/to/file.py:function"
        )
    path = Path(file)
    if not path.is_file():
        raise RewardError(f"--reward_funcs {source}: there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"reward_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise RewardError(f"--reward_funcs {source}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RewardError(
            f"--reward_funcs {source}: {file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise RewardError(f"--reward_funcs {source}: {file} has no function {name}")
    return function
