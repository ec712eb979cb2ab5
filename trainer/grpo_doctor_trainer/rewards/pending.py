"""Completions that have ended before their batch has, and wait for a function that may see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.rewards.calls import Call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grpo_doctor_trainer.rewards.registry import CallStyle


class Pending:
    """What one function has not been called with yet, in the order in which it ended."""

    def __init__(self, name: str, style: CallStyle) -> None:
        self._name = name
        self._style = style
        self._indices: list[int] = []
        self._columns: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, inputs: Mapping[str, list[Any]], indices: Sequence[int]) -> None:
        """Takes in completions of the batch.

        Args:
            inputs: all the columns there are, each with one entry per completion.
            indices: where these completions are in the batch.
        """
        self._indices += indices
        for name, values in self._style.of(inputs).items():
            self._columns.setdefault(name, []).extend(values)

    def take(self, limit: int) -> Call:
        """Makes a call of those that have waited longest."""
        call = Call(
            self._name,
            {name: values[:limit] for name, values in self._columns.items()},
            tuple(self._indices[:limit]),
        )
        del self._indices[:limit]
        for values in self._columns.values():
            del values[:limit]
        return call

    def take_all(self) -> Call:
        """Makes a call of all."""
        return self.take(len(self))
