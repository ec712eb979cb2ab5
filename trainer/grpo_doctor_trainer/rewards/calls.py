"""Calls a reward function and checks what it returns: the same in a worker and in the trainer.

What goes wrong is said in words for the user, here too.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
import signal
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RewardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_trainer.rewards.registry import LoadedReward, RewardFunction
    from grpo_doctor_trainer.rewards.worker_status import StackLine

_LARGEST = 3.4e38  # rewards become float32
_SHOWN = 80


@dataclass(frozen=True)
class Call:
    """One call to make.

    Attributes:
        name: of the function.
        columns: its arguments, each a list with one entry per completion.
        indices: where its completions are in the batch.
    """

    name: str
    columns: dict[str, list[Any]]
    indices: tuple[int, ...]

    @property
    def completions(self) -> int:
        """How many there are."""
        return len(self.indices)


@dataclass(frozen=True)
class Answer:
    """What became of a call.

    Attributes:
        name: of the function.
        indices: as in the call.
        scores: one per completion, NaN where the function does not apply; empty after an error.
        began_s: when the function began, by the monotonic clock that processes share.
        seconds: how long it took.
        error: what went wrong, as a message for the user.
    """

    name: str
    indices: tuple[int, ...]
    scores: list[float]
    began_s: float
    seconds: float
    error: str | None = None

    def seconds_before(self, moment_s: float) -> float:
        """How much of its time was before a moment of the same clock."""
        return min(self.seconds, max(0.0, moment_s - self.began_s))


@dataclass(frozen=True)
class Scored:
    """What a function made of a batch.

    Attributes:
        scores: one per completion, NaN where the function does not apply.
        seconds: how long it took.
        in_rollout_s: the part of it that passed while completions were generated.
        in_logprob_s: the part that passed after that, while nobody waited for it.
    """

    scores: list[float]
    seconds: float
    in_rollout_s: float = 0.0
    in_logprob_s: float = 0.0


def answer(reward: LoadedReward, call: Call, at_completion: Callable[[int], None]) -> Answer:
    """Calls a function that is not async.

    Args:
        reward: the function.
        call: what to call it with.
        at_completion: told the index of each completion that a built-in function begins with.
    """
    started = time.monotonic()
    try:
        if reward.function.is_built_in:
            returned: Any = []
            for index in range(call.completions):
                at_completion(index)
                single = {name: values[index : index + 1] for name, values in call.columns.items()}
                returned += reward.call(**single)
        else:
            returned = reward.call(**call.columns)
            if inspect.iscoroutine(returned):  # async, but does not look it: a partial, a lambda
                returned = asyncio.run(returned)
        return _answer(call, started, checked(returned, reward.function, call))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - told to the user
        return _answer(call, started, error=raised(error, reward.function, call))


async def answer_async(reward: LoadedReward, call: Call) -> Answer:
    """Awaits an async function."""
    started = time.monotonic()
    try:
        returned = await reward.call(**call.columns)
        return _answer(call, started, checked(returned, reward.function, call))
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
        return _answer(call, started, error=raised(error, reward.function, call))


def _answer(
    call: Call, started: float, scores: list[float] | None = None, error: str | None = None
) -> Answer:
    seconds = time.monotonic() - started
    return Answer(call.name, call.indices, scores or [], started, seconds, error)


def raised(error: BaseException, function: RewardFunction, call: Call) -> str:
    """Says that a function raised, and where; a `RewardError` says by itself what is wrong."""
    if isinstance(error, RewardError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    hint = "Correct it, or return None where it does not apply"
    if isinstance(error, TypeError) and "indices must be integers" in str(error):
        hint = "Completions are text here, not chat messages: use completion, without [0]"
    return (
        f"the reward function {function.source} raised {type(error).__name__}: {error} "
        f"({last.filename}, line {last.lineno}); it was given {', '.join(call.columns)}. {hint}"
    )


def took_too_long(  # noqa: PLR0913 - the parts of one sentence
    function: RewardFunction,
    limit_s: float,
    completions: int,
    completion: str | None,
    *,
    one_alone: bool,
    line: StackLine | None,
) -> str:
    """Says that a function did not answer in time, with what and where.

    Args:
        function: what was called.
        limit_s: `--reward_timeout`.
        completions: how many there were in the call.
        completion: the text of the one it was at, or of the first; none: not known.
        one_alone: whether the limit is for a single completion.
        line: where it was.
    """
    shown = "" if completion is None else f"{completion[:_SHOWN]!r}"
    inputs = f"the completion {shown}" if one_alone else f"{completions} completions"
    where = f"; it was at {line[0]}, line {line[1]}, in {line[2]}" if line else ""
    first = f"; the first completion is {shown}" if shown and not one_alone else ""
    return (
        f"the reward function {function.source} gave no answer for {inputs} within {limit_s:g} s "
        f"(--reward_timeout){where}{first}. Make it faster, give what it waits for a time limit, "
        "or raise --reward_timeout (0: no limit)"
    )


def line_in(stack: list[StackLine], file: str | None) -> StackLine | None:
    """The innermost line of a stack that is in the user's file, else the innermost one.

    Args:
        stack: innermost first.
        file: the user's, as stack traces show it.
    """
    in_file = [line for line in stack if line[0] == file]
    return next(iter(in_file or stack), None)


def checked(returned: Any, function: RewardFunction, call: Call) -> list[float]:
    """Turns what a function returned into numbers: a list, an array or a tensor of them.

    Args:
        returned: by the function.
        function: which it was.
        call: what it was called with.

    Raises:
        RewardError: not one finite number or None per completion.
    """
    if hasattr(returned, "tolist"):  # numpy's arrays and torch's tensors, without importing them
        returned = returned.tolist()
    if not isinstance(returned, list | tuple) or len(returned) != call.completions:
        size = (
            f"{len(returned)} values"
            if isinstance(returned, list | tuple)
            else type(returned).__name__
        )
        raise RewardError(
            f"the reward function {function.source} returned {size} for {call.completions} "
            "completions; it must return a list with one number, or None, per completion"
        )
    return [_number(value, function, call, index) for index, value in enumerate(returned)]


def _number(value: Any, function: RewardFunction, call: Call, index: int) -> float:
    if value is None:
        return math.nan
    try:
        # Text that reads as a number is a mistake too: the function returned a part of its input.
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if abs(number) <= _LARGEST:
        return number
    texts = call.columns.get("completions")
    label = f"{texts[index][:_SHOWN]!r}" if texts else f"number {call.indices[index] + 1}"
    raise RewardError(
        f"the reward function {function.source} returned {value!r:.{_SHOWN}} for the completion "
        f"{label}; return a finite number, or None where it does not apply"
    )


def how_it_ended(code: int | None, line: StackLine | None) -> str:
    """Says how a process ended.

    Args:
        code: its exit code; negative: the signal that ended it.
        line: where it was, if that is known.
    """
    where = f" at {line[0]}, line {line[1]}, in {line[2]}" if line else ""
    if code is None or code >= 0:
        return (
            f"ended with exit code {code}{where}, without an answer: "
            "something in it calls os._exit, or ends the process in C"
        )
    name = signal.Signals(-code).name
    hint = ", as the kernel does when memory runs out (see dmesg)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}{where}, without an answer"


def why_not_sent(calls: list[Call], sources: list[str], error: Exception) -> str:
    """Says which column cannot go to another process.

    Args:
        calls: what was to be sent.
        sources: the function of each, as the user asked for it.
        error: what sending raised.
    """
    for call, source in zip(calls, sources, strict=True):
        for name, values in call.columns.items():
            try:
                pickle.dumps(values)
            except Exception as problem:  # noqa: BLE001 - told to the user
                return (
                    f"the column {name} cannot be sent to the process of the reward function "
                    f"{source}: {type(problem).__name__}: {problem}. Store plain values in it, "
                    "or run the functions in the trainer with --reward_num_workers 0"
                )
    return f"the arguments of {', '.join(sources)} cannot be sent: {error}"
