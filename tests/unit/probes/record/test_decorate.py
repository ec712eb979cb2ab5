"""Decorated functions behave as the undecorated ones do."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from grpo_doctor_probes import phase
from tests.unit.probes.conftest import Recorded


def test_an_async_generator_passes_values_both_ways(recording: Recorded) -> None:
    thrown: list[BaseException] = []

    @phase("rollout")
    async def stream() -> AsyncGenerator[str, str]:
        try:
            got = yield "first"
            yield f"got {got}"
        except ValueError as error:
            thrown.append(error)
            yield "recovered"

    async def main() -> list[str]:
        running = stream()
        items = [await running.__anext__(), await running.asend("hello")]
        items.append(await running.athrow(ValueError("from outside")))
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()
        return items

    assert inspect.isasyncgenfunction(stream)
    assert asyncio.run(main()) == ["first", "got hello", "recovered"]
    assert [str(e) for e in thrown] == ["from outside"]
    assert [r.name for r in recording.rows] == ["rollout"]


def test_an_async_generator_that_is_closed_early_cleans_up(recording: Recorded) -> None:
    cleaned: list[bool] = []

    @phase("rollout")
    async def stream() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            cleaned.append(True)

    async def main() -> None:
        running = stream()
        await running.__anext__()
        await running.aclose()

    asyncio.run(main())
    assert cleaned == [True]
    assert recording.header.open_spans == ()


def test_an_exception_inside_a_generator_reaches_the_caller(recording: Recorded) -> None:
    @phase("dataload")
    def batches() -> Generator[int, None, None]:
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(batches())
    assert [r.name for r in recording.rows] == ["error/dataload/OSError: disk", "dataload"]


def test_a_generator_based_coroutine_can_still_be_awaited(recording: Recorded) -> None:
    @types.coroutine
    def old_style() -> Generator[None, None, int]:
        yield
        return 4

    wrapped: Any = phase("rollout")(old_style)

    async def main() -> int:
        return int(await wrapped())

    assert asyncio.run(main()) == 4
    assert [r.name for r in recording.rows] == ["rollout"]


def test_methods_of_every_kind(recording: Recorded) -> None:
    class Trainer:
        @phase("train")
        def method(self) -> str:
            return type(self).__name__

        @phase("train")
        @staticmethod
        def static() -> str:
            return "static"

        @phase("train")
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

    assert (Trainer().method(), Trainer().static(), Trainer().of_class()) == (
        "Trainer",
        "static",
        "Trainer",
    )
    assert len(recording.rows) == 3


def test_recursion_gives_a_span_for_each_call(recording: Recorded) -> None:
    @phase("reward")
    def factorial(n: int) -> int:
        return 1 if n <= 1 else n * factorial(n - 1)

    assert factorial(5) == 120
    assert [r.depth for r in recording.rows] == [4, 3, 2, 1, 0]
