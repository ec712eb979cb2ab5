"""Finds reward functions by name or in the user's files, and loads them where they will run."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.accuracy import math_verify
from grpo_doctor_trainer.rewards.built_in import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from grpo_doctor_trainer.config import TrainerConfig

PER_COMPLETION = "per_completion"
"""The attribute by which a function of the user's says that it looks at each completion alone."""
_ALWAYS_THERE = ("completions", "prompts", "completion_ids")


@dataclass(frozen=True)
class RewardFunction:
    """A function that scores completions, not loaded yet.

    Attributes:
        name: what logs and spans call it.
        source: how the user asked for it.
        dataset_columns: the columns it may ask for.
    """

    name: str
    source: str
    dataset_columns: tuple[str, ...]

    @property
    def is_built_in(self) -> bool:
        """Whether it is ours: then each completion is scored for itself."""
        return self.source in BUILT_IN


@dataclass(frozen=True)
class CallStyle:
    """How a function is to be called.

    Attributes:
        columns: those that it takes; none: every column there is.
        is_async: whether it is to be awaited.
        per_completion: whether it may be called with any completions of a batch, in any order:
            each score depends on its own completion alone.
    """

    columns: tuple[str, ...] | None
    is_async: bool
    per_completion: bool

    def of(self, inputs: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Picks its columns out of all there are."""
        names = inputs if self.columns is None else [c for c in self.columns if c in inputs]
        return {column: inputs[column] for column in names}


@dataclass(frozen=True)
class LoadedReward:
    """A function that can be called.

    Attributes:
        function: what was asked for.
        call: `call(completions=[...], **columns)` gives one number or None per completion, or a
            coroutine that does.
        style: how.
    """

    function: RewardFunction
    call: Callable[..., Any]
    style: CallStyle


def reward_names(sources: list[str]) -> list[str]:
    """Gives each function a name of its own: the built-in's, or the function's in its file."""
    names: list[str] = []
    for source in sources:
        name = source if source in BUILT_IN else source.rpartition(":")[2]
        names.append(f"{name}_{len(names)}" if name in names else name)
    return names


def find_rewards(sources: list[str], dataset_columns: set[str]) -> list[RewardFunction]:
    """Checks that every function is a built-in one, or names a file that exists.

    The files themselves are loaded by the processes that run them.

    Args:
        sources: `--reward_funcs`.
        dataset_columns: what the functions may ask for.

    Raises:
        RewardError: names what cannot be found.
    """
    for source in sources:
        if source not in BUILT_IN:
            _file_of(source)
        if source == "accuracy" and importlib.util.find_spec("math_verify") is None:
            raise RewardError(
                "--reward_funcs accuracy compares answers with math-verify, which is not "
                "installed: pip install math-verify"
            )
    columns = tuple(sorted(dataset_columns))
    names = reward_names(sources)
    return [RewardFunction(n, s, columns) for n, s in zip(names, sources, strict=True)]


def load(function: RewardFunction, config: TrainerConfig) -> LoadedReward:
    """Imports a function and looks at what it takes.

    Args:
        function: as `find_rewards` gave it.
        config: the options, for the limits of built-in functions.

    Raises:
        RewardError: the file cannot be imported, has no such function, or the function needs a
            column that the dataset does not have.
    """
    make = BUILT_IN.get(function.source)
    call = make(config) if make else _from_file(function.source)
    is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - an object may have an async __call__
    )
    per_completion = function.is_built_in or getattr(call, PER_COMPLETION, None) is True
    style = CallStyle(_columns(call, function), is_async, per_completion)
    return LoadedReward(function, call, style)


def prepare(functions: Iterable[RewardFunction]) -> None:
    """Does beforehand what would make a first call slow.

    Raises:
        RewardError: what a built-in function needs is missing.
    """
    if any(function.source == "accuracy" for function in functions):
        math_verify()


def file_of(function: RewardFunction) -> str | None:
    """The path of the user's file as stack traces show it; none for built-in functions."""
    return None if function.is_built_in else str(_file_of(function.source).resolve())


def _columns(call: Callable[..., Any], function: RewardFunction) -> tuple[str, ...] | None:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # written in C, some of them: given all, they will say
        return None
    available, source = function.dataset_columns, function.source
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    positional = [each.name for each in needed if each.kind is each.POSITIONAL_ONLY]
    if positional:
        raise RewardError(
            f"--reward_funcs {source} takes {', '.join(positional)} by position only; reward "
            "functions are called with names: take out the / of its signature"
        )
    missing = [
        each.name
        for each in needed
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and each.name not in (*_ALWAYS_THERE, *available)
    ]
    if missing:
        raise RewardError(
            f"--reward_funcs {source} needs the column {' and '.join(missing)}, which the dataset "
            f"does not have; columns there: {', '.join(available) or 'only the prompt'}"
        )
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters)


def _file_of(source: str) -> Path:
    file, mark, _ = source.rpartition(":")
    if not mark:
        raise RewardError(
            f"--reward_funcs {source} is neither one of {', '.join(BUILT_IN)} nor "
            "path/to/file.py:function"
        )
    if not Path(file).is_file():
        raise RewardError(f"--reward_funcs {source}: there is no file {file}")
    return Path(file)


def _from_file(source: str) -> Callable[..., Any]:
    path, name = _file_of(source), source.rpartition(":")[2]
    module = _module(path.resolve(), source)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise RewardError(f"--reward_funcs {source}: {path} has no function {name}")
    return function


def _module(path: Path, source: str) -> ModuleType:
    # The whole path: two functions of a file share its module, two files of one name do not.
    name = "reward_file_" + "".join(c if c.isalnum() else "_" for c in str(path))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RewardError(f"--reward_funcs {source}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RewardError(
            f"--reward_funcs {source}: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module
