"""The open-span stack of each thread: what it is doing now, in the mapped header.

A level of the stack is an object of its own with the two words of the header that it owns, so
that a span's begin and end need no arithmetic; see `spans` for the hot path built on it.
"""

from __future__ import annotations

from _thread import get_ident  # `threading` costs 7 ms

from grpo_doctor_probes.record import layout

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from typing import Any, Protocol

    from grpo_doctor_probes.record.spanfile import SpanFile

    class Records(Protocol):
        """What threads and timers need of the recorder that they belong to."""

        file: SpanFile

        def append(self, word: int, start_ns: int, end_ns: int, value: float = 0.0) -> None:
            """Write a record."""

        def note_error(self) -> None:
            """Count an error of our own."""


_WORD_BYTES = 8
_MAX_RECORDED_DEPTH = 255


class Level:
    """A place in a thread's stack.

    `cell` is (start_ns, mark) of the span that is open here, mark 0 if none is. `words` maps the
    key of a span to the last word of its records at this level.
    """

    __slots__ = ("cell", "cuda_start", "depth", "next", "previous", "thread", "words")

    def __init__(self, thread: ThreadState, depth: int, previous: Level | None) -> None:
        self.thread = thread
        self.depth = min(depth, _MAX_RECORDED_DEPTH)
        self.previous = previous
        self.next: Level | None = None
        self.cell = thread.cell(depth)
        self.words: dict[object, int] = {}
        self.cuda_start: Any = None

    def word(self, kind: int, name_id: int) -> int:
        """Return the last word of a record that lies at this level."""
        return (
            name_id
            | self.thread.slot << layout.THREAD_SHIFT
            | self.depth << layout.DEPTH_SHIFT
            | kind << layout.KIND_SHIFT
        )


class ThreadState:
    """A thread's stack. `level` is where its next span goes.

    `in_order` is the recorder as long as spans end in the reverse order of their beginning.
    Coroutines that take turns on a thread don't do so; the spans that ended early are `_holes` in
    the stack until those above them end too, and for so long `in_order` is None.
    """

    __slots__ = ("_holes", "_root", "_stack", "in_order", "level", "owner", "slot")

    def __init__(self, owner: Records, slot: int) -> None:
        self.owner = owner
        self.slot = slot
        self.in_order: Records | None = owner
        start = layout.THREADS_OFFSET + slot * layout.THREAD_BYTES + layout.THREAD_INFO.size
        end = start + layout.THREAD_DEPTH * 2 * _WORD_BYTES
        self._stack = memoryview(owner.file.header)[start:end]
        self._stack[:] = bytes(end - start)  # what an earlier thread of this slot left open
        self._holes = 0
        self.level = self._root = Level(self, 0, None)

    def cell(self, depth: int) -> memoryview:
        """The two words of a level; past the header's depth, and in a slot shared by threads,
        they are in no file."""
        start = depth * 2 * _WORD_BYTES
        memory = self._stack[start : start + 2 * _WORD_BYTES]
        if not memory or self.slot == layout.THREAD_SLOTS - 1:
            memory = memoryview(bytearray(2 * _WORD_BYTES))
        return memory.cast("Q")

    def enter(self) -> Level:
        """Return the level for a span that begins, the one above it prepared."""
        level = self.level
        if level.next is None:
            level.next = Level(self, level.depth + 1, level)
        return level

    def begin(self, start_ns: int, mark: int) -> Level:
        """Put a span on the stack; `leave` takes it off."""
        level = self.enter()
        assert level.next is not None
        self.level = level.next
        level.cell[0] = start_ns
        level.cell[1] = mark
        return level

    def leave(self, level: Level) -> None:
        """Take a span off the stack, in whatever order."""
        level.cell[1] = 0
        if self.level is not level.next:
            self._holes += 1
            self.in_order = None
            return
        while self._holes and level.previous is not None and not level.previous.cell[1]:
            level = level.previous
            self._holes -= 1
        self.level = level
        if not self._holes:
            self.in_order = self.owner

    def retire(self) -> None:
        """Let go of the slot. A generator that outlives its thread may still end its spans."""
        self.in_order = None
        level: Level | None = self._root
        while level is not None:
            level.cell = memoryview(bytearray(2 * _WORD_BYTES)).cast("Q")
            level.previous = None
            level.next, level = None, level.next


class Tenancy:
    """A thread's hold on its slot, given back when the thread ends and its locals with it.

    So pools that start threads per step stay bounded, also where garbage collection is off.
    """

    __slots__ = ("_free_slots", "_state")

    def __init__(self, state: ThreadState, free_slots: list[int]) -> None:
        self._state = state
        self._free_slots = free_slots

    def __del__(self) -> None:
        self._state.retire()
        if self._state.slot != layout.THREAD_SLOTS - 1:
            self._free_slots.append(self._state.slot)


def current_thread_name() -> bytes:
    """Return its start, as the header has room for it."""
    # `threading.current_thread` would enter a thread that C++ started into the host's own list.
    import threading  # noqa: PLC0415

    threads = getattr(threading, "_active", {})
    name = getattr(threads.get(get_ident()), "name", "")
    return str(name).encode("utf-8", "replace")[:56]
