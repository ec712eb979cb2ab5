"""A user's reward functions, each a part of the phase `reward` under its own name."""

from __future__ import annotations

from grpo_doctor_probes.hooks.wrapping import spanned

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any

# What vLLM's and transformers' modules are called by; a reward model is timed by its own name.
_FORWARD = "forward"


def name_rewards(trainer: Any) -> None:
    """Puts a span around each reward function of a trainer that has a list of them.

    Functions are replaced in the list. Of an object with `__call__`, and of a model, the method
    is replaced: frameworks look at the object's class.
    """
    functions = getattr(trainer, "reward_funcs", None)
    if not isinstance(functions, list):
        return
    names = getattr(trainer, "reward_func_names", None) or []
    for place, function in enumerate(functions):
        name = names[place] if place < len(names) else None
        functions[place] = with_span(function, str(name) if name else name_of(function))


def name_of(function: Any) -> str:
    """What a framework calls a reward: the function's name, the class's of an object."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def with_span(function: Any, name: str) -> Any:
    """The same reward, timed as `reward/<name>`."""
    span = f"reward/{name}"
    if hasattr(function, "__code__"):
        return spanned(function, span)
    kind = type(function)
    method = _FORWARD if hasattr(function, "parameters") else "__call__"
    inner = getattr(kind, method, None)
    if inner is not None and hasattr(inner, "__code__"):
        setattr(kind, method, spanned(inner, span))
    return function
