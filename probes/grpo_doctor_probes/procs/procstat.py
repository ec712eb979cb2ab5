"""The one line of /proc/PID/stat, and of each thread's. Format: proc_pid_stat(5)."""

from __future__ import annotations

import os

from grpo_doctor_probes.procs.procfs import read_record

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Of `flags`, linux/sched.h: PF_KTHREAD, a thread of the kernel; PF_EXITING, it was killed and gives
# back its memory; PF_FORKNOEXEC, it runs the program of its parent since the fork.
KERNEL_THREAD, EXITING, FORKED = 0x00200000, 0x4, 0x40
DEAD = frozenset("ZXx")  # states of what has ended


class _Number:
    """A field that is a number: the manual's field n is word n - 3."""

    def __init__(self, word: int) -> None:
        self._word = word

    def __get__(self, stat: Stat, _: type[Stat]) -> int:
        return int(stat.words[self._word])


class Stat:
    """A process or a thread. Fields are parsed when they are asked for: most readers want few.

    Each raises IndexError where this kernel has fewer fields, ValueError for a damaged one.
    """

    __slots__ = ("_record", "words")
    parent = _Number(1)
    group = _Number(2)
    session = _Number(3)
    flags = _Number(6)
    major_faults = _Number(9)  # how often it waited for a page from a disk
    nice = _Number(16)
    threads = _Number(17)
    started_ticks = _Number(19)  # after boot, in 1/CLOCK_TICKS_PER_S s; with the PID, who it is
    virtual_bytes = _Number(20)  # 0 as soon as it has given back its memory
    core = _Number(36)  # that it ran on last
    wait_status = _Number(49)  # of a zombie, how it ended; 0 without the right to read it

    def __init__(self, record: bytes) -> None:
        """From the content of the file. A name may hold `) R (`: the last bracket counts.

        Raises ValueError: it is not a stat record.
        """
        self._record, self.words = record, record[record.rindex(b")") + 2 :].split()

    @property
    def name(self) -> bytes:
        """Its name, at most 15 bytes for a thread of a program; they may be any."""
        return self._record[self._record.index(b"(") + 1 : self._record.rindex(b")")]

    @property
    def state(self) -> str:
        """One letter; see `dead`."""
        return self.words[0].decode("ascii", "replace")

    @property
    def dead(self) -> bool:
        """Whether it has ended; a zombie has."""
        return self.state in DEAD

    @property
    def cpu_ticks(self) -> int:
        """Time on a core, its own and the kernel's for it, in 1/CLOCK_TICKS_PER_S s."""
        return int(self.words[11]) + int(self.words[12])

    @property
    def rss_bytes(self) -> int:
        """Its memory."""
        return int(self.words[21]) * _PAGE_BYTES

    @property
    def image(self) -> tuple[int, int] | None:
        """Where its code and its stack lie: the same after a fork, another after exec. None: hidden
        from us, or of the kernel."""
        code, stack = int(self.words[23]), int(self.words[25])
        return (code, stack) if code and stack else None


def read_stat(folder: str | os.PathLike[str]) -> Stat:
    """Of the process or thread that has this folder in /proc. Raises OSError, ValueError."""
    return Stat(read_record(f"{os.fspath(folder)}/stat"))


def state_of(folder: str | os.PathLike[str]) -> str:
    """Return its state letter; empty when it has gone."""
    try:
        return read_stat(folder).state
    except (OSError, ValueError, IndexError):
        return ""
