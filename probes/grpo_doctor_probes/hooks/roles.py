"""What a process is in a job of several, said by the object that is made in it."""

from __future__ import annotations

from grpo_doctor_probes import recorder
from grpo_doctor_probes.decorate import timed
from grpo_doctor_probes.sidecar import ROLE

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _TakenRole:
    """A context that takes a role when it is entered, so that it fits functions of every kind."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        ROLE.take(self._name)

    def __exit__(self, *error: object) -> None:
        return


def with_role(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a function, such as an actor's `__init__`, that first takes a role for its process."""
    return lambda function: timed(lambda: _TakenRole(name), function)


class _GpuTimes:
    """A context for what works on the GPU in a process that has no steps, at which others look
    whether CUDA is in use by now."""

    def __enter__(self) -> None:
        active = recorder.ACTIVE or recorder.start_if_asked()
        if active is not None:
            try:
                active.watch_cuda()
            except Exception:  # noqa: BLE001 - a guest never raises into its host
                recorder.note_error()

    def __exit__(self, *error: object) -> None:
        return


def with_gpu_times(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; spans in its process are timed on the GPU too, once CUDA is in use."""
    return timed(_GpuTimes, function)
