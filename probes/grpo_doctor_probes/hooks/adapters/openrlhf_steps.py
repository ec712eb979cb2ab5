"""The steps of OpenRLHF's controllers, with the settings and metrics that they know.

A step begins where samples are generated (`ppo_trainer`) or waited for (`ppo_trainer_async`) and
ends where the next begins: logging, evaluation and checkpoints are part of the step they follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from grpo_doctor_probes import describe, metrics
from grpo_doctor_probes.hooks.coverage import version_of
from grpo_doctor_probes.hooks.describing import package_versions
from grpo_doctor_probes.hooks.spans import STEPS, HookedSpan, inside
from grpo_doctor_probes.hooks.wrapping import before, spanned
from grpo_doctor_probes.record.recorder import quietly
from grpo_doctor_probes.record.rundir import DRIVER
from grpo_doctor_probes.record.sidecar import ROLE

_NAMESPACES = ("Namespace", "SimpleNamespace")


class _Loop:
    """Where the controller of this process is."""

    number = 1  # of the step that is open or begins next
    is_due = True  # whether the next samples begin a step


def around_fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Return the controller's loop: it first describes the run, and ends the last step after it."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ROLE.of_this_process() == DRIVER:
            quietly(_describe, self)
            quietly(_name_queue, self, args, kwargs)
        result = fit(self, *args, **kwargs)
        if _Loop.is_due:
            STEPS.end()
        else:  # the last call of a loader or queue: there was nothing left
            quietly(STEPS.drop)
        return result

    return wrapper


def resume(states: Any, *_: Any, **__: Any) -> None:
    """A run that resumes from these states continues counting where it was."""
    _Loop.number = int(states["global_step"]) + 1


def begin_if_due(*_: Any, **__: Any) -> None:
    """Where the samples of a step come from: begins a step if one is due."""
    if _Loop.is_due and ROLE.of_this_process() == DRIVER and not inside("eval"):
        _Loop.is_due = False
        STEPS.begin(_Loop.number)


def around_logging(save_logs_and_checkpoints: Callable[..., Any]) -> Callable[..., Any]:
    """The last of a step: its metrics are kept, and a checkpoint is a phase if one is due."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        number, logs = _logged([*args, *kwargs.values()])
        if number is None:
            return save_logs_and_checkpoints(self, *args, **kwargs)
        quietly(metrics, number, logs)
        if _saves(self, number):
            with HookedSpan("checkpoint"):
                result = save_logs_and_checkpoints(self, *args, **kwargs)
        else:
            result = save_logs_and_checkpoints(self, *args, **kwargs)
        _Loop.number, _Loop.is_due = number + 1, True
        return result

    return wrapper


def write_evaluation(logs: Any, *_: Any, **__: Any) -> None:
    """Evaluation's metrics belong to the step that it follows."""
    if isinstance(logs, dict):
        metrics(_Loop.number - 1, logs)


def flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield settings under the names of the command line: groups of 0.10.2 and newer with dots."""
    for name, item in vars(value).items():
        if type(item).__name__ in _NAMESPACES:
            yield from flat(item, f"{prefix}{name}.")
        elif item not in (float("inf"), None):  # infinite: never save, never evaluate
            yield f"{prefix}{name}", item


def _describe(controller: Any) -> None:
    settings = dict(flat(controller.strategy.args))
    nodes = settings.get("actor.num_nodes", settings.get("actor_num_nodes"))
    gpus = settings.get("actor.num_gpus_per_node", settings.get("actor_num_gpus_per_node"))
    ranks = int(nodes) * int(gpus) if nodes and gpus else None
    version = version_of("openrlhf")
    describe("openrlhf", version, settings, package_versions(), world_size=ranks)


def _name_queue(controller: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The trainer of an asynchronous run waits for samples at a queue."""
    for queue in (getattr(controller, "rollout_queue", None), *args, *kwargs.values()):
        if hasattr(queue, "get") and hasattr(queue, "put"):
            queue.get = before(begin_if_due)(spanned(queue.get, "rollout/wait"))
            return


def _logged(values: list[Any]) -> tuple[int | None, dict[str, Any]]:
    """Return the step and its metrics; the order of arguments differs from version to version."""
    number = next((value for value in values if type(value) is int), None)
    return number, next((value for value in values if isinstance(value, dict)), {})


def _saves(controller: Any, number: int) -> bool:
    args = getattr(controller, "args", None)
    every = getattr(getattr(args, "ckpt", args), "save_steps", None)
    return isinstance(every, int) and every > 0 and number % every == 0
