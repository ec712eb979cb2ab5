"""Collectives of torch.distributed as records, so that waiting can be told from working.

Each rank numbers the collectives of a group in the order it enters them; the k-th of one rank is
the k-th of every other. Who came last is then known, and what the others spent before that moment
was waiting for it. Needs no help of the backend: gloo and NCCL alike, any torch since 1.13.
"""

from __future__ import annotations

import functools
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from grpo_doctor_probes import layout, recorder

if TYPE_CHECKING:
    from collections.abc import Callable

# Point-to-point calls are left out: not every rank of a group makes them, so counting fails.
_COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)
_MARK = "__grpo_doctor__"
# A Work is a C++ object without room for attributes; the sequence number is found by identity.
_MAX_WORKS = 4096


class _Watch:
    """Sequence numbers per group and the asynchronous operations not yet waited for."""

    def __init__(self) -> None:
        self.sequence: dict[str, int] = {}
        self.works: dict[int, tuple[str, int]] = {}
        self.depth = 0

    def next(self, group: str) -> int:
        number = self.sequence.get(group, 0) + 1
        self.sequence[group] = number
        return number


def watch_collectives() -> bool:
    """Wraps the collectives of an already imported torch.distributed; True if any was wrapped.

    Calling again does nothing. Without a recording, or without torch, does nothing.
    """
    active = recorder.ACTIVE or recorder.start_if_asked()
    distributed = sys.modules.get("torch.distributed")
    if active is None or distributed is None:
        return False
    try:
        return _wrap_all(distributed)
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()
        return False


def _wrap_all(distributed: Any) -> bool:
    watch = _Watch()
    modules = [distributed, sys.modules.get("torch.distributed.distributed_c10d")]
    wrapped = False
    for name in _COLLECTIVES:
        original = getattr(distributed, name, None)
        if original is None or hasattr(original, _MARK):
            continue
        replacement = _wrap(watch, name, original)
        for module in modules:
            if getattr(module, name, None) is original:
                setattr(module, name, replacement)
                wrapped = True
    work = getattr(distributed, "Work", None)
    if wrapped and work is not None and not hasattr(work.wait, _MARK):
        work.wait = _wrap_wait(watch, work.wait)
    return wrapped


def _wrap(watch: _Watch, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        # all_gather_object calls all_gather: one operation of the user's is one record.
        if watch.depth or recorder.ACTIVE is None:
            return original(*args, **kwargs)
        group = _group_name(args, kwargs)
        sequence = watch.next(group)
        watch.depth += 1
        start_ns = monotonic_ns()
        try:
            result = original(*args, **kwargs)
        finally:
            watch.depth -= 1
            _record(layout.COLLECTIVE, name, group, sequence, start_ns)
        if kwargs.get("async_op") and result is not None:
            if len(watch.works) >= _MAX_WORKS:
                watch.works.clear()
            watch.works[id(result)] = (group, sequence)
        return result

    setattr(collective, _MARK, True)
    return collective


def _wrap_wait(watch: _Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        known = watch.works.pop(id(work), None)
        if known is None:
            return original(work, *args, **kwargs)
        start_ns = monotonic_ns()
        try:
            return original(work, *args, **kwargs)
        finally:
            _record(layout.COLLECTIVE_WAIT, "wait", known[0], known[1], start_ns)

    setattr(wait, _MARK, True)
    return wait


def _record(kind: int, name: str, group: str, sequence: int, start_ns: int) -> None:
    active = recorder.ACTIVE
    if active is None:
        return
    try:
        key = (name, (("group", group),))
        name_id = active.name_ids.get(key) or active.name_id(key)
        active.write(kind, name_id, start_ns, monotonic_ns(), float(sequence))
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()


def _group_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    group = kwargs.get("group")
    if group is None:
        # Signatures differ in where the group stands; it is the argument that has a group_name.
        group = next((a for a in args if hasattr(a, "group_name")), None)
    return str(getattr(group, "group_name", "world"))[:64] if group is not None else "world"
