"""What the adapters of agents share: coroutines that are trajectories, and methods of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from grpo_doctor_probes.hooks.table import HOOKED
from grpo_doctor_probes.hooks.wrapping import Around
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.trajectories import CURRENT, begin, outcome_of


def following(
    begun: Callable[..., object] = lambda *_, **__: None,
    done: Callable[..., object] = lambda *_: None,
    unless: Callable[..., bool] = lambda *_, **__: False,
    *,
    ends: bool = True,
) -> Around:
    """For `replace`: each call of a coroutine function is a trajectory, which ends with it.

    Args:
        begun: called with the trajectory and the arguments, `quietly`, as all of these.
        done: with the trajectory, the result and the positional arguments.
        unless: which calls are none, by their arguments; may not raise.
        ends: False where `done` sees to it, and only what the call raises ends it.
    """

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            one = None if unless(*args, **kwargs) else begin()
            if one is None:
                return await function(*args, **kwargs)
            quietly(begun, one, *args, **kwargs)
            token = CURRENT.set(one)
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                quietly(one.end, outcome_of(type(error)))
                raise
            finally:
                CURRENT.reset(token)
            quietly(done, one, result, *args)
            if ends:
                quietly(one.end)
            return result

        setattr(wrapper, HOOKED, True)
        return wrapper

    return around


def wrap_own(
    kind: type,
    names: Iterable[str],
    around: Callable[[type, str, Callable[..., Any]], Callable[..., Any]],
    bases: tuple[str, ...] = (),
) -> None:
    """Wrap methods once where a class of the user's has them from, but for a framework's bases."""
    for name in names:
        owner = next((each for each in kind.__mro__ if name in vars(each)), object)
        function = vars(owner).get(name)
        if owner.__name__ in bases or hasattr(function, HOOKED):
            continue
        if function is not None and hasattr(function, "__code__"):
            wrapper = around(owner, name, function)
            setattr(wrapper, HOOKED, True)
            setattr(owner, name, wrapper)
