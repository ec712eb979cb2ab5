"""Calls the reward functions on this rank's completions and checks what they return."""

from __future__ import annotations

import math
import traceback
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_probes import phase
from grpo_doctor_trainer.errors import RewardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.prompts import PromptBatch
    from grpo_doctor_trainer.experience import TokenBatch
    from grpo_doctor_trainer.rewards.registry import RewardFunction

_NOT_APPLICABLE = math.nan


class Rewards:
    """The reward functions of a run."""

    def __init__(self, functions: Sequence[RewardFunction], config: TrainerConfig) -> None:
        self._functions = functions
        self._config = config
        self.names = [function.name for function in functions]

    def score(
        self, prompts: PromptBatch, tokens: TokenBatch, completions: list[str]
    ) -> torch.Tensor:
        """Scores each completion with each function.

        Args:
            prompts: what was to be completed.
            tokens: the completions as tokens.
            completions: the same as text, without end and padding tokens.

        Returns:
            [completions, functions], float32; NaN where a function returned None (not applicable).

        Raises:
            RewardError: a function raised, or returned something else than one finite number or
                None each.
        """
        rows = prompts.rows
        inputs: dict[str, list[Any]] = {
            name: [row.columns.get(name) for row in rows] for name in rows[0].columns
        }
        lengths = tokens.completion_mask.sum(dim=1).tolist()
        ids = [row[:n] for row, n in zip(tokens.completion_tokens.tolist(), lengths, strict=True)]
        inputs |= {"prompts": prompts.texts, "completions": completions, "completion_ids": ids}
        scores = torch.empty(len(completions), len(self._functions))
        for place, function in enumerate(self._functions):
            wanted = inputs if function.columns is None else function.columns
            with phase(f"reward/{function.name}"):
                returned = _call(
                    function, {name: inputs[name] for name in wanted if name in inputs}
                )
            scores[:, place] = torch.tensor(_checked(returned, function, completions))
        return scores

    def close(self) -> None:
        """Ends the processes; can be called twice."""


def combine(scores: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Adds the weighted scores of each completion, leaving out what is not applicable.

    Args:
        scores: [completions, functions], NaN where not applicable.
        weights: one per function.

    Returns:
        [completions]
    """
    return (scores * torch.tensor(weights)).nansum(dim=1)


def _call(function: RewardFunction, columns: dict[str, Any]) -> Any:
    try:
        return function.call(**columns)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise RewardError(
            f"the reward function {function.source} raised {type(error).__name__}: {error} "
            f"({place.filename}, line {place.lineno}); it was given {', '.join(columns)}. "
            "Correct it, or return None where it does not apply"
        ) from error


def _checked(returned: Any, function: RewardFunction, completions: list[str]) -> list[float]:
    if not isinstance(returned, list | tuple) or len(returned) != len(completions):
        size = (
            f"{len(returned)} values"
            if isinstance(returned, list | tuple)
            else type(returned).__name__
        )
        raise RewardError(
            f"the reward function {function.source} returned {size} for {len(completions)} "
            "completions; it must return a list with one number, or None, per completion"
        )
    return [
        _number(value, function, text) for value, text in zip(returned, completions, strict=True)
    ]


def _number(value: Any, function: RewardFunction, completion: str) -> float:
    if value is None:
        return _NOT_APPLICABLE
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isfinite(number):
        return number
    raise RewardError(
        f"the reward function {function.source} returned {value!r} for the completion "
        f"{completion[:80]!r}; return a finite number, or None where it does not apply"
    )
