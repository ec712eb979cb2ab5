"""Process numbers of several hosts in one evidence, and in the words of its verdict.

Host k's process 4711 is the number `k * SPACE + 4711`, of a type of its own: in a text it leaves a
reference, and no other number looks like one. The verdict's words get the number and the name of
the host in its place when they are rendered. Clocks are moved so that the last looks of all hosts
are at the same moment: what is compared are ages, and those stay what they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

from grpo_doctor_probes.evidence import Evidence, HostFacts

SPACE = 10**12  # Linux numbers processes below 2**22; 9,000 hosts stay exact in JavaScript
_NS_PER_TICK = 10_000_000
_OPEN, _CLOSE = "\ue000", "\ue001"  # for private use: nothing printable that was read has them
_REFERENCE = re.compile(rf"(?P<word>(?<![-\w])(?:pid|process|PID) )?{_OPEN}(?P<pid>\d+){_CLOSE}")
_STRAY = str.maketrans("", "", _OPEN + _CLOSE)  # of a text that was cut in the middle
_IN_KERNEL_MESSAGE = re.compile(r"(?:(?<=[Kk]illed process )|(?<=, pid=)|(?<=, pid='))\d{1,16}")
_Row = TypeVar("_Row")

# What rows of the evidence call these.
_NUMBERS = frozenset({"pid", "tid", "parent"})
_LISTS_OF_NUMBERS = frozenset({"pids", "peers", "stopped_peers"})
_MOMENTS = frozenset({"at_ns", "last_ran_ns"})
_ROWS = frozenset({"members", "processes", "threads", "holders"})
OF_ONE_LOOK = ("stacks", "limits", "gpus", "engines")
OF_ALL_LOOKS = (
    "blocked", "arguments", "positions", "locals_seen", "spans", "dumps", "ras", "logs",
)  # fmt: skip


class ProcessNumber(int):
    """A process or thread of one of several hosts."""

    def __format__(self, spec: str) -> str:
        return f"{_OPEN}{int(self)}{_CLOSE}"

    def __str__(self) -> str:
        return f"{self}"


def real(pid: int) -> int:
    """The process number on its own host."""
    return int(pid) % SPACE


def space_of(pid: int) -> int:
    """The number of the host that it is of; 0 where no evidence was joined."""
    return int(pid) // SPACE


@dataclass(frozen=True, slots=True)
class Space:
    """Where one host's evidence is moved to. The default: evidence that was joined before and has
    been read again.
    """

    number: int = 0
    host: str = ""
    later_ns: int = 0  # added to every moment of its clock

    def pid(self, pid: int | None) -> int | None:
        """A process or thread number of this host in joined evidence."""
        return ProcessNumber(self.number * SPACE + pid) if pid is not None and pid > 0 else pid

    def at(self, ns: int) -> int:
        """A moment of this host's clock; 0 stays unknown."""
        return ns + self.later_ns if ns else 0


def moved(evidence: Evidence, space: Space) -> Evidence:
    """The evidence with process numbers and moments of the space."""
    rows: dict[str, Any] = {
        name: tuple(_moved(row, space) for row in getattr(evidence, name))
        for name in (*OF_ALL_LOOKS, "looks", "problems")
    }
    looks: dict[str, Any] = {
        name: tuple(tuple(_moved(row, space) for row in look) for look in getattr(evidence, name))
        for name in OF_ONE_LOOK
    }
    job, host = _moved(evidence.job, space), evidence.host
    if space.host:
        of_host: Callable[[Any], Any] = lambda row: replace(row, host=space.host)  # noqa: E731
        looks["gpus"] = tuple(tuple(map(of_host, look)) for look in looks["gpus"])
        ticks = space.later_ns // _NS_PER_TICK
        job = replace(
            job,
            members=tuple(
                replace(member, host=space.host, started_ticks=member.started_ticks + ticks)
                for member in job.members
            ),
        )
        host = _facts(host, space)
    return replace(evidence, job=job, host=host, **rows, **looks)


def _moved(row: _Row, space: Space) -> _Row:
    changed: dict[str, Any] = {}
    kind: Any = type(row)
    for name in _moving(kind):
        value = getattr(row, name)
        if name in _NUMBERS:
            changed[name] = space.pid(value)
        elif name in _MOMENTS:
            changed[name] = space.at(value)
        elif name in _LISTS_OF_NUMBERS:
            changed[name] = tuple(map(space.pid, value))
        else:
            changed[name] = tuple(_moved(inner, space) for inner in value)
    return replace(row, **changed) if changed else row  # type: ignore[type-var]


@cache
def _moving(kind: type) -> tuple[str, ...]:
    moving = _NUMBERS | _MOMENTS | _LISTS_OF_NUMBERS | _ROWS
    return tuple(field.name for field in fields(kind) if field.name in moving)


def _facts(facts: HostFacts | None, space: Space) -> HostFacts | None:
    """Its kernel's messages name processes of this host, and its disks are its own."""
    if facts is None:
        return None
    return replace(
        facts,
        kernel=tuple(
            (age_s, f"{_renumbered(text, space.number)} (on {space.host})")
            for age_s, text in facts.kernel
        ),
        disks=tuple(replace(disk, path=f"{space.host}:{disk.path}") for disk in facts.disks),
    )


def kernel_message(text: str) -> str:
    """A message of a kernel of joined evidence as it was written."""
    return _renumbered(text, 0)


def _renumbered(text: str, number: int) -> str:
    return _IN_KERNEL_MESSAGE.sub(lambda match: str(number * SPACE + real(int(match[0]))), text)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Renders texts with references to processes. `names` are by the number of the host."""

    names: Mapping[int, str]

    def name(self, pid: int) -> str:
        """The host of a process; "" where it is not known."""
        return self.names.get(space_of(pid), "")

    def sentence(self, text: str) -> str:
        """`pid 4711 on node7`."""

        def located(match: re.Match[str]) -> str:
            number, word = int(match["pid"]), match["word"] or ""
            host = self.name(number)
            where = f" on {host}" if word else f" (on {host})"
            return f"{word}{real(number)}{where if host else ''}"

        return _REFERENCE.sub(located, text).translate(_STRAY)

    def command(self, text: str) -> str:
        """A command line, with the host that it is for as a comment."""
        numbers = [int(match["pid"]) for match in _REFERENCE.finditer(text)]
        names = dict.fromkeys(host for number in numbers if (host := self.name(number)))
        line = _REFERENCE.sub(lambda m: f"{m['word'] or ''}{real(int(m['pid']))}", text)
        if not names:
            return line
        line, mark, comment = line.partition("  # ")
        where = f"on {', '.join(names)}"
        return f"{line}  # {where}{f': {comment}' if mark else ''}"

    @staticmethod
    def id(text: str) -> str:
        """The name of a node in the document: the number in joined evidence, as it is."""
        return text.translate(_STRAY)
