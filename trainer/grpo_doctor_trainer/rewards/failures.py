"""How a worker process can fail, in words for the user."""

from __future__ import annotations

import pickle
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpo_doctor_trainer.rewards.calls import Call


def how_it_ended(code: int | None, place: tuple[str, int, str] | None) -> str:
    """Says how a process ended.

    Args:
        code: its exit code; negative: the signal that ended it.
        place: file, line and function where it was, if that is known.
    """
    where = f" at {place[0]}, line {place[1]}, in {place[2]}" if place else ""
    if code is None or code >= 0:
        return (
            f"ended with exit code {code}{where}, without an answer: "
            "something in it calls os._exit, or ends the process in C"
        )
    name = signal.Signals(-code).name
    hint = ", as the kernel does when memory runs out (see dmesg)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}{where}, without an answer"


def why_not_sent(calls: list[Call], sources: list[str], error: Exception) -> str:
    """Says which column cannot go to another process."""
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
