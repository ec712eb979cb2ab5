"""Collectives of torch.distributed as records, to separate wait time from work.

Each rank numbers the collectives of a group in the order it enters them; the k-th of one rank is
the k-th of every other. Who came last is then known, and what the others spent before that moment
was waiting for it. Needs no help of the backend: gloo and NCCL alike, any torch since 2.1.

Seen are calls through `torch.distributed`, which DeepSpeed, FSDP and accelerate make. Not seen are
those from C++ (DDP's gradient buckets) and of functions that a library took out of the module
before `watch_collectives` was called.
"""

from __future__ import annotations

import sys
from time import monotonic_ns

from grpo_doctor_probes.record import layout, recorder

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
    from weakref import ref

# Point-to-point calls are left out: not every rank of a group makes them, so counting fails.
_COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
_MARK = "__grpo_doctor__"
_WORLD = "world"


class _Numbering:
    """Sequence numbers per group and the asynchronous operations not yet waited for."""

    def __init__(self, distributed: Any) -> None:
        from threading import local  # noqa: PLC0415 - torch has imported it

        self.distributed = distributed
        self.thread = local()  # `inside` is set while its thread is in a collective
        self.sequence: dict[str, int] = {}
        # By identity, because a Work is a C++ object without room for attributes; the reference
        # takes the entry out when the operation goes away, and its id is used again.
        self.works: dict[int, tuple[ref[Any], str, int]] = {}

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int] | None:
        """Group and sequence number of a call; None if this rank is not a member of the group."""
        group = self._group_name(args, kwargs)
        if group is None:
            return None
        number = self.sequence[group] = self.sequence.get(group, 0) + 1
        return group, number

    def remember(self, result: object, group: str, sequence: int) -> None:
        """Notes an asynchronous operation, if `result` is one."""
        if not isinstance(result, self.distributed.Work):
            return
        from weakref import ref  # noqa: PLC0415

        key = id(result)
        self.works[key] = (ref(result, lambda _: self.works.pop(key, None)), group, sequence)

    def _group_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        kind = self.distributed.ProcessGroup
        not_ours = self.distributed.GroupMember.NON_GROUP_MEMBER
        group = kwargs.get("group")
        if group is None:
            # Signatures differ in where the group stands; it is the argument that is one.
            group = next((a for a in args if isinstance(a, kind) or a is not_ours), None)
        if group is None or group is self.distributed.group.WORLD:
            return _WORLD
        return str(group.group_name)[:64] if isinstance(group, kind) else None


def watch_collectives() -> bool:
    """Wrap the collectives of an already imported torch.distributed; True if any was wrapped.

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
    numbering = _Numbering(distributed)
    modules = [distributed, sys.modules.get("torch.distributed.distributed_c10d")]
    wrapped = False
    for name in _COLLECTIVES:
        original = getattr(distributed, name, None)
        if original is None or hasattr(original, _MARK):
            continue
        replacement = _wrap(numbering, name, original)
        for module in modules:
            if getattr(module, name, None) is original:
                setattr(module, name, replacement)
                wrapped = True
    if wrapped and not hasattr(distributed.Work.wait, _MARK):
        distributed.Work.wait = _wrap_wait(numbering, distributed.Work.wait)
    return wrapped


def _wrap(numbering: _Numbering, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    from functools import wraps  # noqa: PLC0415 - 3 ms; torch has imported it

    @wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        # all_gather_object calls all_gather: one operation of the user's is one record.
        if hasattr(numbering.thread, "inside"):
            return original(*args, **kwargs)
        span = _Span.begin(layout.COLLECTIVE, name, lambda: numbering.enter(args, kwargs))
        if span is None:
            return original(*args, **kwargs)
        numbering.thread.inside = True
        try:
            result = original(*args, **kwargs)
        finally:
            del numbering.thread.inside
            span.end()
        try:
            numbering.remember(result, span.group, span.sequence)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
        return result

    setattr(collective, _MARK, True)
    return collective


def _wrap_wait(numbering: _Numbering, original: Callable[..., Any]) -> Callable[..., Any]:
    from functools import wraps  # noqa: PLC0415

    @wraps(original)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        operation = numbering.works.pop(id(work), None)
        if operation is None:
            return original(work, *args, **kwargs)
        span = _Span.begin(layout.COLLECTIVE_WAIT, "wait", lambda: operation[1:])
        try:
            return original(work, *args, **kwargs)
        finally:
            if span is not None:
                span.end()

    setattr(wait, _MARK, True)
    return wait


class _Span:
    """A collective or a wait while it runs: on the open-span stack, so that one that hangs is
    seen with its group and sequence number."""

    def __init__(self, kind: int, name: str, group: str, sequence: int) -> None:
        active = recorder.ACTIVE
        assert active is not None
        self.group = group
        self.sequence = sequence
        self._active = active
        thread = active.thread()
        name_id = active.name_id((name, (("group", group),)))
        self._word = thread.level.word(kind, name_id)
        number = sequence & layout.SEQUENCE_MASK
        mark = name_id | number << layout.THREAD_SHIFT | kind << layout.KIND_SHIFT
        self._start_ns = monotonic_ns()
        self._level = thread.begin(self._start_ns, mark)

    @classmethod
    def begin(
        cls, kind: int, name: str, describe: Callable[[], tuple[str, int] | None]
    ) -> _Span | None:
        """Begin a span at the (group, sequence number) that `describe` gives, if it gives one."""
        active = recorder.ACTIVE or recorder.start_if_asked()
        if active is None or active.is_lost(monotonic_ns()):
            return None
        try:
            name_and_sequence = describe()
            return None if name_and_sequence is None else cls(kind, name, *name_and_sequence)
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
            return None

    def end(self) -> None:
        """Take the span off the stack and record it."""
        if self._active is not recorder.ACTIVE:  # stopped, or forked in between
            return
        try:
            end_ns = monotonic_ns()
            if end_ns > self._active.check_at_ns and self._active.is_lost(end_ns):
                return
            self._level.thread.leave(self._level)
            self._active.append(self._word, self._start_ns, end_ns, float(self.sequence))
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
