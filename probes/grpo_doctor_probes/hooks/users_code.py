"""Code that the user wrote, under its own names: reward functions and callbacks of a trainer."""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes.hooks.wrapping import spanned, without_span

_FORWARD = "forward"  # what a reward that is a model is called by
_EVENT = "on_"


def name_rewards(trainer: Any) -> None:
    """Put a span around each reward function of a trainer that has a list of them.

    Functions are replaced in the list. Of an object with `__call__`, and of a model, the method
    is replaced: frameworks look at the object's class.
    """
    functions = getattr(trainer, "reward_funcs", None)
    if not isinstance(functions, list):
        return
    names = getattr(trainer, "reward_func_names", None) or []
    # ms-swift scores with a reward model through an object beside it, in a list of its own.
    plugins = getattr(trainer, "reward_model_plugins", None) or []
    for index, function in enumerate(functions):
        configured = names[index] if index < len(names) else None
        name = str(configured or name_of(function))
        plugin = plugins[index] if index < len(plugins) else None
        if plugin is None:
            functions[index] = with_span(function, name)
        else:
            plugins[index] = with_span(plugin, name)


def name_of(function: Any) -> str:
    """Return what a framework calls a reward: the function's name, the class's of an object."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def with_span(function: Any, name: str) -> Any:
    """Return the same reward, timed as `reward/<name>`."""
    span = f"reward/{name}"
    if hasattr(function, "__code__"):
        return spanned(function, span)
    time_method(function, _FORWARD if hasattr(function, "parameters") else "__call__", span)
    return function


def time_method(instance: Any, method: str, span: str) -> None:
    """A span around a method of an object, for all objects of its class."""
    kind = type(instance)
    inner = getattr(kind, method, None)
    if inner is not None and hasattr(inner, "__code__"):
        if method not in vars(kind):  # a base class may have a span of its own
            inner = without_span(inner)
        setattr(kind, method, spanned(inner, span))


def name_callbacks(trainer: Any) -> None:
    """Put a span around each event of a trainer's callbacks that are not transformers' own.

    No phase: what a callback does between phases stays unattributed, and has a name.
    """
    handler = getattr(trainer, "callback_handler", None)
    for callback in list(getattr(handler, "callbacks", ())):
        kind = type(callback)
        if kind.__module__.partition(".")[0] == "transformers":
            continue
        for name, function in list(vars(kind).items()):
            if name.startswith(_EVENT) and hasattr(function, "__code__"):
                setattr(kind, name, spanned(function, f"callback/{kind.__name__}.{name}"))
