"""The one line of /proc/PID/stat, and of each thread's. Format: proc_pid_stat(5)."""

from __future__ import annotations

import os

from grpo_doctor_probes.procs.procfs import read_record

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of linux/sched.h
_EXITING = 0x00000004  # PF_EXITING: it was killed, and gives back its memory
DEAD = frozenset("ZXx")  # states of what has ended
_NOT_EXECUTED = 0x00000040  # PF_FORKNOEXEC: forked, and runs the program of its parent
_ALL = -1


class Stat:
    """A process or a thread. Fields are parsed when they are asked for: most readers want few.

    The manual counts fields from 1 with the number and the name, so its field n is word n - 3.
    A property raises IndexError where this kernel has fewer fields, ValueError for a damaged one.
    """

    __slots__ = ("_record", "_words")

    def __init__(self, record: bytes, words: list[bytes]) -> None:
        """`words` are the fields of `record` behind the name."""
        self._record, self._words = record, words

    @property
    def name(self) -> bytes:
        """Its name, at most 15 bytes for a thread of a program; they may be any."""
        return self._record[self._record.index(b"(") + 1 : self._record.rindex(b")")]

    @property
    def state(self) -> str:
        """One letter; see `dead`."""
        return self._words[0].decode("ascii", "replace")

    @property
    def dead(self) -> bool:
        """Whether it has ended; a zombie has."""
        return self.state in DEAD

    @property
    def parent(self) -> int:
        """The process that it is a child of."""
        return int(self._words[1])

    @property
    def group(self) -> int:
        """Its process group."""
        return int(self._words[2])

    @property
    def session(self) -> int:
        """Its session."""
        return int(self._words[3])

    @property
    def kernel(self) -> bool:
        """Whether it is a thread of the kernel."""
        return bool(int(self._words[6]) & _KERNEL_THREAD)

    @property
    def exiting(self) -> bool:
        """Whether it is on its way out, though its state may not say so yet."""
        return bool(int(self._words[6]) & _EXITING)

    @property
    def forked(self) -> bool:
        """Whether it runs its parent's program since the fork: an exec makes it one of its own."""
        return bool(int(self._words[6]) & _NOT_EXECUTED)

    @property
    def major_faults(self) -> int:
        """How often it waited for a page from a disk."""
        return int(self._words[9])

    @property
    def cpu_ticks(self) -> int:
        """Time on a core, its own and the kernel's for it, in 1/CLOCK_TICKS_PER_S s."""
        return int(self._words[11]) + int(self._words[12])

    @property
    def nice(self) -> int:
        """Its nice value."""
        return int(self._words[16])

    @property
    def threads(self) -> int:
        """How many threads the process has."""
        return int(self._words[17])

    @property
    def started_ticks(self) -> int:
        """When it was started after boot, in 1/CLOCK_TICKS_PER_S s. With its number, who it is."""
        return int(self._words[19])

    @property
    def virtual_bytes(self) -> int:
        """Its address space; 0 as soon as it has given back its memory."""
        return int(self._words[20])

    @property
    def rss_bytes(self) -> int:
        """Its memory."""
        return int(self._words[21]) * _PAGE_BYTES

    @property
    def image(self) -> tuple[int, int] | None:
        """Where its code and its stack lie: the same after a fork, another after exec. None: hidden
        from us, or of the kernel."""
        code, stack = int(self._words[23]), int(self._words[25])
        return (code, stack) if code and stack else None

    @property
    def core(self) -> int:
        """The core that it ran on last."""
        return int(self._words[36])

    @property
    def wait_status(self) -> int:
        """Of a zombie, how it ended; 0 without the right to read it."""
        return int(self._words[49])


def parse_stat(record: bytes, fields: int = _ALL) -> Stat:
    """From the content of the file. A name may hold `) R (`: the last bracket counts.

    Args:
        record: What was read.
        fields: How many behind the name will be asked for, at most: who samples can save the rest.

    Raises:
        ValueError: it is not a stat record.
    """
    return Stat(record, record[record.rindex(b")") + 2 :].split(None, fields))


def read_stat(folder: str | os.PathLike[str]) -> Stat:
    """Of the process or thread that has this folder in /proc. Raises OSError, ValueError."""
    return parse_stat(read_record(f"{os.fspath(folder)}/stat"))


def state_of(folder: str | os.PathLike[str]) -> str:
    """Return its state letter; empty when it has gone."""
    try:
        return read_stat(folder).state
    except (OSError, ValueError, IndexError):
        return ""
