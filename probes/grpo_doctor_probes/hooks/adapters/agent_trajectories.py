"""What the adapters of agents share: trajectories that are coroutines, or the samples of a rank
that goes through each turn with all of them; and methods of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from grpo_doctor_probes.hooks.table import HOOKED
from grpo_doctor_probes.hooks.wrapping import Around
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.trajectories import CURRENT, Part, Trajectory, begin, outcome_of


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


class Batch:
    """The samples that a rank generates at once, in their order."""

    now: Any = None  # the one that this process is in

    def __init__(self, trainer: Any, ones: list[Trajectory]) -> None:
        self.ones, self.state = ones, ""
        self.parts: dict[int, Part] = {}
        updates = trainer.state.global_step
        for one in ones:
            one.note(put=ones[0].key, version=updates, last_version=updates)

    def be(self, state: str, samples: Iterable[int] | None = None) -> None:
        """End the state of some samples (default: of all), and begin another if it has a name."""
        self.state = state
        for sample in range(len(self.ones)) if samples is None else samples:
            part = self.parts.pop(sample, None)
            if part is not None:
                part.end()
            if state:
                self.parts[sample] = self.ones[sample].part(state)

    def ready(self, error: type[BaseException] | None = None) -> None:
        """What follows is of the training."""
        self.be("")
        for one in self.ones:
            one.end(outcome_of(error))


def begun_together(samples: list[Any]) -> list[Trajectory]:
    """Return a trajectory for each of a rank's samples, [] where nothing is recorded."""
    ones = [one for one in (begin() for _ in samples) if one is not None]
    return ones if len(ones) == len(samples) else []


def during(enter: Callable[..., object], leave: Callable[..., object]) -> Around:
    """For `replace`: what becomes of the samples of a batch before and after a call."""

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            batch = Batch.now
            if batch is None:
                return function(self, *args, **kwargs)
            quietly(enter, batch, self, *args, **kwargs)
            try:
                return function(self, *args, **kwargs)
            finally:
                quietly(leave, batch, self)

        return wrapper

    return around


def around_batch(begin: Callable[..., object], end: Callable[..., object]) -> Around:
    """For `replace`: a call that a batch is begun before; `end` is called with what it raised, or
    with None. Both `quietly`."""

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            quietly(begin, *args, **kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                quietly(end, type(error))
                raise
            quietly(end, None)
            return result

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
