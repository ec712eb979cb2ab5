"""Spans around functions of every kind, as decorators. Imported with the first decorator used."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])
_Make = Callable[..., AbstractContextManager[object]]
# Flags of a code object, as in `inspect`, which costs 9 ms of import.
_GENERATOR, COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


def timed(make: _Make, function: _F) -> _F:
    """`function` within what `make` gives for each call, by its arguments."""
    if isinstance(function, (staticmethod, classmethod)):
        return cast("_F", type(function)(timed(make, function.__func__)))
    flags = flags_of(function)
    if flags & _ASYNC_GENERATOR:
        wrapper = _async_generator(make, function)
    elif flags & (COROUTINE | _ITERABLE_COROUTINE):
        wrapper = _coroutine(make, function)
    elif flags & _GENERATOR:
        wrapper = _generator(make, function)
    else:
        wrapper = _function(make, function)
    return cast("_F", functools.wraps(function)(wrapper))


def flags_of(function: object) -> int:
    """Return the flags of its code object; 0 without one."""
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags


def _function(make: _Make, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with make(*args, **kwargs):
            return function(*args, **kwargs)

    return call


def _coroutine(make: _Make, function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with make(*args, **kwargs):
            return await function(*args, **kwargs)

    return call


def _generator(make: _Make, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with make(*args, **kwargs):
            return (yield from function(*args, **kwargs))

    return call


def _async_generator(make: _Make, function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        resume, sent = inner.asend, None
        with make(*args, **kwargs):
            while True:
                try:
                    item = await resume(sent)
                except StopAsyncIteration:
                    return
                try:
                    resume, sent = inner.asend, (yield item)
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - what was thrown in goes on inwards
                    resume, sent = inner.athrow, error

    return call
