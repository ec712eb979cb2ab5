"""The steps of OpenRLHF's controllers, with the settings and metrics that they know.

A step begins where samples are generated (`ppo_trainer`) or waited for (`ppo_trainer_async`) and
ends where the next begins: logging, evaluation and checkpoints are part of the step they follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_doctor_probes import describe, metrics
from grpo_doctor_probes.hooks.coverage import version_of
from grpo_doctor_probes.hooks.describing import package_versions
from grpo_doctor_probes.hooks.spans import STEPS, inside
from grpo_doctor_probes.hooks.wrapping import after, before, by_arguments, each, spanned
from grpo_doctor_probes.record.rundir import DRIVER
from grpo_doctor_probes.record.sidecar import ROLE

_NAMESPACES = ("Namespace", "SimpleNamespace")


class _Loop:
    """Where the controller of this process is."""

    number = 1  # of the step that is open or begins next
    is_due = True  # whether the next samples begin a step


def resume(states: Any, *_: Any, **__: Any) -> None:
    """A run that resumes from these states continues counting where it was."""
    _Loop.number = int(states["global_step"]) + 1


def begin_if_due(*_: Any, **__: Any) -> None:
    """Where the samples of a step come from: begins a step if one is due."""
    if _Loop.is_due and ROLE.of_this_process() == DRIVER and not inside("eval"):
        _Loop.is_due = False
        STEPS.begin(_Loop.number)


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


def _prepare(controller: Any, *args: Any, **kwargs: Any) -> None:
    if ROLE.of_this_process() != DRIVER:
        return
    # The trainer of an asynchronous run waits for samples at a queue.
    for queue in (getattr(controller, "rollout_queue", None), *args, *kwargs.values()):
        if hasattr(queue, "get") and hasattr(queue, "put"):
            queue.get = before(begin_if_due)(spanned(queue.get, "rollout/wait"))
            break
    settings = dict(flat(controller.strategy.args))
    nodes = settings.get("actor.num_nodes", settings.get("actor_num_nodes"))
    gpus = settings.get("actor.num_gpus_per_node", settings.get("actor_num_gpus_per_node"))
    ranks = int(nodes) * int(gpus) if nodes and gpus else None
    version = version_of("openrlhf")
    describe("openrlhf", version, settings, package_versions(), world_size=ranks)


def _finish(*_: Any, **__: Any) -> None:
    if _Loop.is_due:
        STEPS.end()
    else:  # the last call of a loader or queue: there was nothing left
        STEPS.drop()


# The controller's loop: it first describes the run, and ends the last step after it.
around_fit = each(before(_prepare), after(_finish))


def _logged(*values: Any, **named: Any) -> tuple[int | None, dict[str, Any]]:
    """Return the step and its metrics; the order of arguments differs from version to version."""
    everything = (*values, *named.values())
    number = next((value for value in everything if type(value) is int), None)
    return number, next((value for value in everything if isinstance(value, dict)), {})


def _write_metrics(_controller: Any, *args: Any, **kwargs: Any) -> None:
    number, logs = _logged(*args, **kwargs)
    if number is not None:
        metrics(number, logs)


def _span_of_logging(controller: Any, *args: Any, **kwargs: Any) -> str | None:
    number, _ = _logged(*args, **kwargs)
    settings = getattr(controller, "args", None)
    every = getattr(getattr(settings, "ckpt", settings), "save_steps", None)
    saves = number is not None and isinstance(every, int) and every > 0 and number % every == 0
    return "checkpoint" if saves else None


def _end_step(_controller: Any, *args: Any, **kwargs: Any) -> None:
    number, _ = _logged(*args, **kwargs)
    if number is not None:
        _Loop.number, _Loop.is_due = number + 1, True


# The last of a step: its metrics are kept, and a checkpoint is a phase if one is due.
around_logging = each(by_arguments(_span_of_logging), before(_write_metrics), after(_end_step))
