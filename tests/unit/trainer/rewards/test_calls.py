"""What is said of calls that went wrong, and whose time their answers count as."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest

from grpo_doctor_trainer.errors import RewardError
from grpo_doctor_trainer.rewards.calls import (
    Answer,
    Call,
    answer,
    checked,
    how_it_ended,
    line_in,
    raised,
    took_too_long,
    why_not_sent,
)
from grpo_doctor_trainer.rewards.registry import CallStyle, LoadedReward, RewardFunction

MINE = RewardFunction("mine", "rewards.py:mine", ())
LENGTH = RewardFunction("length", "length", ())
LINE = ("rewards.py", 7, "wait")
AT = "at rewards.py, line 7, in wait"
WITHIN = "within 3 s (--reward_timeout)"
FIRST = "; the first completion is '2+2'"


def call(*texts: str, first: int = 0, **columns: list[Any]) -> Call:
    return Call(
        "mine", {"completions": list(texts), **columns}, tuple(range(first, first + len(texts)))
    )


@pytest.mark.parametrize(
    ("moment_s", "before_s"), [(4.0, 0.0), (5.0, 0.0), (6.5, 1.5), (7.0, 2.0), (9.0, 2.0)]
)
def test_an_answers_time_is_before_a_moment_as_far_as_it_was(
    moment_s: float, before_s: float
) -> None:
    assert Answer("mine", (), [], began_s=5.0, seconds=2.0).seconds_before(moment_s) == before_s


@pytest.mark.parametrize(
    ("completion", "one_alone", "line", "message_start"),
    [
        ("2+2", True, LINE, f"for the completion '2+2' {WITHIN}; it was {AT}. Make"),
        ("2+2", False, LINE, f"for 5 completions {WITHIN}; it was {AT}{FIRST}. Make"),
        ("2+2", False, None, f"for 5 completions {WITHIN}{FIRST}. Make"),
        (None, False, None, f"for 5 completions {WITHIN}. Make"),
        (None, True, None, f"for the completion  {WITHIN}. Make"),
        ("x" * 99, True, None, f"for the completion '{'x' * 80}' {WITHIN}. Make"),
    ],
)
def test_a_late_function_is_named_with_what_it_was_at(
    completion: str | None, one_alone: bool, line: Any, message_start: str
) -> None:
    message = took_too_long(MINE, 3.0, 5, completion, one_alone=one_alone, line=line)
    assert message.startswith(f"the reward function rewards.py:mine gave no answer {message_start}")


def test_of_a_stack_the_innermost_line_of_the_users_file_counts() -> None:
    stack = [("socket.py", 3, "recv"), LINE, ("rewards.py", 9, "mine")]
    assert line_in(stack, "rewards.py") == LINE
    assert line_in(stack, "other.py") == stack[0]
    assert line_in(stack, None) == stack[0]
    assert line_in([], "rewards.py") is None


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        (3, None, "ended with exit code 3, without an answer: something in it calls os._exit"),
        (0, LINE, f"ended with exit code 0 {AT}, without an answer:"),
        (None, None, "ended with exit code None, without an answer:"),
        (-int(signal.SIGSEGV), LINE, f"was ended by SIGSEGV {AT}, without an answer"),
        (-int(signal.SIGKILL), None,
         "was ended by SIGKILL, as the kernel does when memory runs out (see dmesg), without"),
    ],
)  # fmt: skip
def test_how_a_process_ended_is_said(code: int | None, line: Any, words: str) -> None:
    assert how_it_ended(code, line).startswith(words)


@pytest.mark.parametrize(
    ("error", "hinted"),
    [
        (TypeError("string indices must be integers, not 'str'"), True),
        (TypeError("unsupported operand"), False),
        (KeyError("indices must be integers"), False),
    ],
)
def test_who_takes_completions_for_chats_gets_a_hint(error: Exception, hinted: bool) -> None:
    try:
        raise error
    except type(error) as caught:
        message = raised(caught, MINE, call("a", level=[3]))
    assert "it was given completions, level." in message
    assert ("Completions are text here" in message) == hinted
    assert ("Correct it, or return None" in message) != hinted


@pytest.mark.parametrize("value", [3.4e38, -3.4e38, 0, True, None])
def test_a_number_that_float32_holds_is_a_reward(value: Any) -> None:
    (score,) = checked([value], MINE, call("a"))
    assert math.isnan(score) if value is None else score == value


@pytest.mark.parametrize("value", [3.5e38, -3.5e38, b"1", float("-inf")])
def test_any_other_is_none(value: Any) -> None:
    with pytest.raises(RewardError, match="for the completion 'b'; return a finite number"):
        checked([1.0, value], MINE, call("a", "b"))


def test_a_completion_whose_text_is_not_given_is_named_by_its_number() -> None:
    with pytest.raises(RewardError, match="for the completion number 5; return"):
        checked([1.0, "x"], MINE, Call("mine", {"level": [1, 2]}, (3, 4)))


def reward(function: RewardFunction, returns: Any) -> LoadedReward:
    return LoadedReward(function, returns, CallStyle(None, is_async=False, per_completion=True))


def test_a_built_in_function_is_told_its_completions_one_by_one() -> None:
    indices: list[int] = []
    inputs: list[Any] = []

    def length(**columns: Any) -> list[float]:
        inputs.append(columns)
        return [float(len(columns["completions"][0]))]

    batch = call("a", "bcd", level=[1, 2], first=4)
    result = answer(reward(LENGTH, length), batch, indices.append)
    assert (result.scores, result.indices, result.error) == ([1.0, 3.0], (4, 5), None)
    assert indices == [0, 1]
    assert inputs == [{"completions": ["a"], "level": [1]}, {"completions": ["bcd"], "level": [2]}]


def test_the_time_of_a_call_is_within_that_around_it() -> None:
    result = answer(reward(MINE, lambda **_: [1.0]), call("a"), lambda _: None)
    assert 0 <= result.seconds < result.began_s


def test_the_column_that_cannot_be_sent_is_named() -> None:
    calls = [call("a"), call("b", level=[lambda: 1])]
    sources = ["length", "rewards.py:mine"]
    message = why_not_sent(calls, sources, ValueError("too large"))
    assert message.startswith(
        "the column level cannot be sent to the process of the reward function rewards.py:mine: "
    )
    assert why_not_sent(calls[:1], sources[:1], ValueError("too large")) == (
        "the arguments of length cannot be sent: too large"
    )
