"""Reward functions: the built-in ones and the user's; found, loaded, called, their results checked.

`format`: 1 if a completion is `<think>...</think><answer>...</answer>` and nothing else, as for
DeepSeek-R1 (arXiv 2501.12948, table 1). Where the chat template opens `<think>` in the prompt, the
completion has to close it and may not open it again.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import itertools
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.accuracy import make_accuracy
from grpo_doctor_trainer.tasks import arithmetic_reward

Columns = Mapping[str, list[Any]]

_LAYOUT = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
_TAG = re.compile(r"</?(?:think|answer)>")
_THINK = "<think>"
_ALWAYS_THERE = ("completions", "prompts", "completion_ids")
_LARGEST = 3.4e38  # rewards become float32
_SHOWN = 80


def think_then_answer(
    completions: list[str], prompts: Sequence[str] = (), **_columns: object
) -> list[float]:
    """Score each completion 1 or 0; each of the four tags must occur exactly once."""
    scores = []
    for completion, prompt in itertools.zip_longest(completions, prompts, fillvalue=""):
        opened = _THINK if prompt.rstrip().endswith(_THINK) else ""
        match = _LAYOUT.fullmatch(opened + completion)
        fits = match is not None and not any(_TAG.search(part) for part in match.groups())
        scores.append(float(fits))
    return scores


# Each is made for a run, because some need its limits.
BUILT_IN: dict[str, Callable[[TrainerConfig], Callable[..., Any]]] = {
    "accuracy": make_accuracy,
    "format": lambda _config: think_then_answer,
    "arithmetic": lambda _config: arithmetic_reward,
}


@dataclass(frozen=True)
class RewardFunction:
    """A function that scores completions, not loaded yet.

    Attributes:
        name: in logs and spans.
        source: how the user asked for it.
        dataset_columns: the columns it may ask for.
    """

    name: str
    source: str
    dataset_columns: tuple[str, ...]

    @property
    def file(self) -> str | None:
        """The path of the user's file as stack traces show it; None for built-in functions."""
        return None if self.source in BUILT_IN else str(_file_of(self.source).resolve())


@dataclass(frozen=True)
class LoadedReward:
    """A function that can be called.

    Attributes:
        function: what was asked for.
        call: `call(completions=[...], **columns)` gives one number or None per completion, or a
            coroutine that does.
        columns: those that it takes; None: every column.
        is_async: whether it is to be awaited, together with others.
    """

    function: RewardFunction
    call: Callable[..., Any]
    columns: tuple[str, ...] | None
    is_async: bool

    def arguments(self, columns: Columns) -> Columns:
        """Pick the columns that it takes."""
        return {n: v for n, v in columns.items() if self.columns is None or n in self.columns}


@dataclass
class Answer:
    """The outcome of a call.

    Attributes:
        name: of the function.
        scores: one per completion, NaN where the function does not apply; empty after an error.
        seconds: how long it took.
        error: a message for the user.
    """

    name: str
    scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    error: str | None = None


def reward_names(sources: list[str]) -> list[str]:
    """Give each function a name of its own: the built-in's, or the function's in its file."""
    names: list[str] = []
    for source in sources:
        name = source if source in BUILT_IN else source.rpartition(":")[2]
        names.append(f"{name}_{len(names)}" if name in names else name)
    return names


def find_rewards(sources: list[str], dataset_columns: set[str]) -> list[RewardFunction]:
    """Check that every function is a built-in one, or names a file that exists.

    The files themselves are loaded by the processes that run them.
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
    """Import a function and look at its arguments."""
    make = BUILT_IN.get(function.source)
    call = make(config) if make else _from_file(function.source)
    is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - an object may have an async __call__
    )
    return LoadedReward(function, call, _columns(call, function), is_async)


def answers(
    rewards: Sequence[LoadedReward],
    columns: Columns,
    loop: asyncio.AbstractEventLoop,
    span: Callable[[str], AbstractContextManager[Any]],
) -> Iterator[Answer]:
    """Call functions: those that are async together, then the others in turn."""

    async def awaited(reward: LoadedReward) -> Answer:
        with _answering(reward, columns, span) as (answer, arguments):
            answer.scores = checked(await reward.call(**arguments), reward.function, arguments)
        return answer

    async def together() -> list[Answer]:
        return await asyncio.gather(*(awaited(each) for each in rewards if each.is_async))

    if any(reward.is_async for reward in rewards):
        yield from loop.run_until_complete(together())
    for reward in rewards:
        if reward.is_async:
            continue
        with _answering(reward, columns, span) as (answer, arguments):
            returned = reward.call(**arguments)
            if inspect.iscoroutine(returned):  # async, but does not look it: a partial, a lambda
                returned = asyncio.run(returned)
            answer.scores = checked(returned, reward.function, arguments)
        yield answer


@contextmanager
def _answering(
    reward: LoadedReward, columns: Columns, span: Callable[[str], AbstractContextManager[Any]]
) -> Iterator[tuple[Answer, Columns]]:
    answer, arguments = Answer(reward.function.name), reward.arguments(columns)
    began_s = time.monotonic()
    with span(answer.name):
        try:
            yield answer, arguments
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001
            answer.error = raised(error, reward.function, arguments)
    answer.seconds = time.monotonic() - began_s


def raised(error: BaseException, function: RewardFunction, columns: Columns) -> str:
    """Say that a function raised, and where; a `RewardError` says by itself what is wrong."""
    if isinstance(error, RewardError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    hint = "Correct it, or return None where it does not apply"
    if isinstance(error, TypeError) and "indices must be integers" in str(error):
        hint = "Completions are text here, not chat messages: use completion, without [0]"
    return (
        f"the reward function {function.source} raised {type(error).__name__}: {error} "
        f"({last.filename}, line {last.lineno}); it was given {', '.join(columns)}. {hint}"
    )


def checked(returned: Any, function: RewardFunction, columns: Columns) -> list[float]:
    """Turn what a function returned into numbers: a list, an array or a tensor of them."""
    count = len(next(iter(columns.values()), ()))
    if hasattr(returned, "tolist"):  # numpy's arrays and torch's tensors, without importing them
        returned = returned.tolist()
    if not isinstance(returned, list | tuple) or (columns and len(returned) != count):
        is_list = isinstance(returned, list | tuple)
        size = f"{len(returned)} values" if is_list else type(returned).__name__
        raise RewardError(
            f"the reward function {function.source} returned {size} for {count} "
            "completions; it must return a list with one number, or None, per completion"
        )
    return [_number(value, function, columns, index) for index, value in enumerate(returned)]


def _number(value: Any, function: RewardFunction, columns: Columns, index: int) -> float:
    if value is None:
        return math.nan
    try:
        # Text that reads as a number is a mistake too: the function returned a part of its input.
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if abs(number) <= _LARGEST:
        return number
    texts = columns.get("completions")
    label = f"{texts[index][:_SHOWN]!r}" if texts else f"number {index + 1}"
    raise RewardError(
        f"the reward function {function.source} returned {value!r:.{_SHOWN}} for the completion "
        f"{label}; return a finite number, or None where it does not apply"
    )


def _columns(call: Callable[..., Any], function: RewardFunction) -> tuple[str, ...] | None:
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # some functions written in C: they get every column
        return None
    available, source = function.dataset_columns, function.source
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    positional = [each.name for each in needed if each.kind is each.POSITIONAL_ONLY]
    if positional:
        raise RewardError(
            f"--reward_funcs {source} takes {', '.join(positional)} by position only; reward "
            "functions are called with names: remove the / from its signature"
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
    function: Callable[..., Any] | None = getattr(_module(path.resolve(), source), name, None)
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
        raise RewardError(f"--reward_funcs {source}: {path} is not Python file")
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
