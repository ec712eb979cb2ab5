"""Puts spans around functions of modules that have just been imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

from grpo_doctor_probes.hooks.spans import HookedSpan, SharedSpan
from grpo_doctor_probes.hooks.table import HOOKED, Hook
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.decorate import COROUTINE, flags_of, timed
from grpo_doctor_probes.record.recorder import note_error, quietly
from grpo_doctor_probes.record.sidecar import ROLE
from grpo_doctor_probes.record.trajectories import part as part_of_trajectory

Around = Callable[[Callable[..., Any]], Callable[..., Any]]
_MARK = "__grpo_doctor_hook__"


def wrap_hook(module: ModuleType, hook: Hook) -> bool:
    """Put the hook's span around its function; False where the module has no such function."""

    def make(*_: Any, **__: Any) -> HookedSpan | SharedSpan:
        return SharedSpan(hook.span) if hook.shared else HookedSpan(hook.span, hook.unless)

    if hook.state:
        replace(module, hook.qualname, in_state(hook.state))
    if hook.span_of is None:
        return replace(module, hook.qualname, within(make))
    return replace(module, hook.qualname, by_arguments(hook.span_of))


def within(where: Callable[..., AbstractContextManager[object]]) -> Around:
    """For `replace`: each call is in what `where` gives for its arguments, and may not raise."""
    return lambda function: timed(where, function)


def by_arguments(span_of: Callable[..., str | None]) -> Around:
    """For `replace`: a span that `span_of` chooses by the arguments of a call; None for no span."""

    def where(*args: Any, **kwargs: Any) -> AbstractContextManager[object]:
        try:
            span = span_of(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            note_error()
            span = None
        return nullcontext() if span is None else HookedSpan(span)

    return within(where)


def shared(span: str) -> Around:
    """For `replace`: one span for all calls that are in it at once."""
    return within(lambda *_, **__: SharedSpan(span))


def in_state(name: str) -> Around:
    """For `replace`: a part of the current trajectory for each call."""
    return within(lambda *_, **__: part_of_trajectory(name))


def before(*notes: Callable[..., object]) -> Around:
    """For `replace`: calls the notes with the function's arguments before each call, `quietly`."""

    def where(*args: Any, **kwargs: Any) -> AbstractContextManager[object]:
        for note in notes:
            quietly(note, *args, **kwargs)
        return nullcontext()

    return within(where)


def with_role(name: str) -> Around:
    """For `replace`, of an actor's `__init__` and the like: takes a role for its process first."""
    return before(lambda *_, **__: ROLE.take(name))


def _watch_cuda(*_: Any, **__: Any) -> None:
    # Of what works on the GPU in a process without steps, at which others look for CUDA.
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is not None:
        active.watch_cuda()


# Spans in the function's process are timed on the GPU too, once CUDA is in use.
with_gpu_times = before(_watch_cuda)


def after(note: Callable[..., object]) -> Around:
    """For `replace`: calls `note` with the function's arguments after each call, `quietly`."""

    def without_result(_result: object, /, *args: Any, **kwargs: Any) -> None:
        note(*args, **kwargs)

    return on_result(without_result)


def on_result(note: Callable[..., object]) -> Around:
    """For `replace`: calls `note` with the result and the arguments of each call, `quietly`."""

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            quietly(note, result, *args, **kwargs)
            return result

        async def call_coroutine(*args: Any, **kwargs: Any) -> Any:
            result = await function(*args, **kwargs)
            quietly(note, result, *args, **kwargs)
            return result

        return call_coroutine if flags_of(function) & COROUTINE else call

    return around


def each(*arounds: Around) -> Around:
    """For `replace`: all of these, the first innermost."""
    return lambda function: functools.reduce(lambda inner, around: around(inner), arounds, function)


def spanned(function: Callable[..., Any], span: str) -> Callable[..., Any]:
    """Return a function of the job's within a span, its name and signature kept."""
    if hasattr(function, _MARK):
        return function
    wrapper = timed(lambda *_, **__: HookedSpan(span), function)
    setattr(wrapper, _MARK, span)
    return wrapper


def without_span(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what `spanned` was given, if it made this function."""
    return function.__wrapped__ if hasattr(function, _MARK) else function  # type: ignore[attr-defined]


def replace(module: ModuleType, qualname: str, make: Around) -> bool:
    """Replace a function by what `make` gives for it; False where there is none.

    A method that a class only inherits is not replaced: its base has a hook of its own, and some
    frameworks delete methods of their base's.
    """
    owner, function = _lookup(module, qualname)
    if function is None:
        return False
    wrapper = make(function)
    if wrapper is function:
        return True
    inner, outer = getattr(function, "__func__", function), getattr(wrapper, "__func__", wrapper)
    functools.update_wrapper(outer, inner)
    setattr(outer, HOOKED, True)
    setattr(owner, qualname.rpartition(".")[2], wrapper)
    return True


def _lookup(module: ModuleType, qualname: str) -> tuple[Any, Any]:
    owner: Any = module
    *classes, name = qualname.split(".")
    for part in classes:
        owner = vars(owner).get(part)
        if owner is None:
            return None, None
    function = vars(owner).get(name)
    callable_ = callable(function) or isinstance(function, (staticmethod, classmethod))
    return owner, function if callable_ else None
