"""What a process is in a job of several, said by the object that is made in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grpo_doctor_probes.hooks.wrapping import Around
from grpo_doctor_probes.record import recorder
from grpo_doctor_probes.record.decorate import timed
from grpo_doctor_probes.record.sidecar import ROLE


@contextmanager
def _role(name: str) -> Iterator[None]:
    ROLE.take(name)
    yield


def with_role(name: str) -> Around:
    """Return a function, such as an actor's `__init__`, that first takes a role for its process."""
    return lambda function: timed(lambda: _role(name), function)


@contextmanager
def _gpu_times() -> Iterator[None]:
    # Of what works on the GPU in a process without steps, at which others look for CUDA.
    active = recorder.ACTIVE or recorder.start_if_asked()
    if active is not None:
        recorder.quietly(active.watch_cuda)
    yield


def with_gpu_times(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; spans in its process are timed on the GPU too, once CUDA is in use."""
    return timed(_gpu_times, function)
