"""What an input may cost: the limits of all readers in one table, and a budget that they spend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from grpo_doctor.errors import UsageError

_MIB = 1 << 20
_HOLDS = (dict, list)


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of one kind of input; 0 where a number does not apply.

    `bytes` are of its text, unpacked; `items` are what it is made of; `depth` is how far they nest.
    """

    name: str
    bytes: int
    items: int = 0
    depth: int = 0


# The items of a script are letters read, words and variables copied, loops and calls included.
SCRIPT = Bound("a shell script, with everything that it starts or sources", 4 * _MIB, 2_000_000, 60)
OPTIONS = Bound("the options of a command, including repeated ones", 0, 1000)
PYTHON = Bound("a Python script", _MIB // 4, 0, 100)
YAML = Bound("a YAML file, aliases expanded", _MIB // 2, 20_000, 50)
JSON = Bound("a JSON file", 4 * _MIB, 0, 100)
LOG_LINE = Bound("a line of a log", 16 * _MIB)
LOG = Bound("a log that is read as a whole", 1024 * _MIB)
EVENT = Bound("an event of a trace, or a line of one", 64 * _MIB)
SPANS = Bound("the span file of a rank", 16_384 * _MIB)
BUNDLE = Bound("a bundle of `attach`, packed or unpacked; files in its tar", 256 * _MIB, 1000)
TAR_HEADER = Bound("all long names in a bundle's tar", 64 << 10)
DUMP = Bound("a flight-recorder dump in a bundle; its lists and objects", 64 * _MIB, 4_000_000)
DUMPS = Bound("all flight-recorder dumps of a bundle", 512 * _MIB)
BOUNDS = (
    SCRIPT, OPTIONS, PYTHON, YAML, JSON, LOG_LINE, LOG, EVENT, SPANS, BUNDLE, TAR_HEADER, DUMP,
    DUMPS,
)  # fmt: skip


class TooCostlyError(UsageError):
    """An input costs more than any real one; the message names it."""


class Budget:
    """What is left of a bound, for readers that call each other."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._left = bound.items
        self._depth = 0

    def spend(self, items: int) -> None:
        """Take so many items.

        Raises:
            TooCostlyError: no more are left.
        """
        self._left -= items
        if self._left < 0:
            raise TooCostlyError(
                f"reading this takes more than {self._bound.items:,} steps, the limit for "
                f"{self._bound.name}. Give the training command itself."
            )

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting.

        Raises:
            TooCostlyError: there are too many.
        """
        if self._depth >= self._bound.depth:
            raise TooCostlyError(
                f"this nests more than {self._bound.depth} levels, the limit for "
                f"{self._bound.name}. Give the training command itself."
            )
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def nests_deeper(value: object, depth: int) -> bool:
    """Return whether lists and objects nest more than so many levels."""
    level: list[object] = [value]
    for _ in range(depth + 1):
        groups = [i.values() if isinstance(i, dict) else i for i in level if isinstance(i, _HOLDS)]
        level = [item for group in groups for item in group]
        if not level:
            return False
    return True
