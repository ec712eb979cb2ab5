"""What flight recorders said, the same for every version, backend and file format.

Times are unix nanoseconds, None where the recorder did not know. Texts have no control characters.
"""

from __future__ import annotations

import msgspec

from grpo_doctor_probes.evidence import Frame

Sizes = tuple[tuple[int, ...], ...]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One operation that a rank gave to a process group.

    `op` is one of `dumps.entries.OPERATIONS`, whatever the backend calls it; `label` is the name
    as recorded. `sequence` counts collectives of the group (from 1, the first one recorded may be
    later), `p2p_sequence` its point-to-point launches. `source` and `target` are ranks *within the
    group*, of point-to-point operations alone. `started` is None where the recorder lacks it.
    `timed_out`: the watchdog gave up on it, `timeout_s` after its creation. `frames` are innermost
    first, of pickles alone.
    """

    record: int
    group: str
    group_id: str
    description: str
    backend: str
    op: str
    label: str
    sequence: int
    p2p_sequence: int = 0
    is_p2p: bool = False
    source: int | None = None
    target: int | None = None
    input_sizes: Sizes = ()
    output_sizes: Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    created_ns: int | None = None
    started_ns: int | None = None
    started: bool | None = None
    done: bool = False
    timed_out: bool = False
    timeout_s: float | None = None
    thread_name: str = ""
    frames: tuple[Frame, ...] = ()


class Status(msgspec.Struct, frozen=True):
    """A rank's own counters of a group; -1 none yet. They outlive the ring."""

    enqueued: int = -1
    completed: int = -1


class GroupSeen(msgspec.Struct, frozen=True):
    """A process group as one rank knows it. `ranks` are global, in group order; empty: not said.

    `group_id` is the rank's own number for it. `name` is empty where only a counter is left.
    """

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    backend: str = ""
    group_id: str = ""
    status: Status = Status()


class Recording(msgspec.Struct, frozen=True):
    """What one rank recorded: its newest dump, of each of torch's recorders that was asked.

    `rank` None: not known. `entries` are in the order they were enqueued. `at_unix_ns` is when the
    newest dump was taken.
    """

    rank: int | None
    sources: tuple[str, ...] = ()
    library: str = ""  # of the communication library, "2.27.5"
    at_unix_ns: int = 0
    groups: tuple[GroupSeen, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def from_file(self) -> bool:
        """Return whether it was a file, of whatever moment; what a process reports is of now."""
        return self.sources[0].startswith("file:")


class DumpProblem(msgspec.Struct, frozen=True):
    """A dump, or a part of one, that could not be used: what, and what to do about it. `at_once`:
    it was written with the others, while the job continued.
    """

    source: str
    rank: int | None
    what: str
    remedy: str = ""
    at_once: bool = False


class Recordings(msgspec.Struct, frozen=True):
    """All ranks that said something, ordered by rank (unknown ones last), and what was unusable."""

    ranks: tuple[Recording, ...] = ()
    problems: tuple[DumpProblem, ...] = ()

    @property
    def unusable(self) -> frozenset[int]:
        """Ranks whose dumps can't be used: they are not missing, and what they did is not known."""
        problems = (problem for problem in self.problems if not problem.at_once)
        ranks = {problem.rank for problem in problems if problem.rank is not None}
        return frozenset(ranks - {recording.rank for recording in self.ranks})

    def of(self, rank: int) -> Recording | None:
        """The recording of one rank."""
        return next((recording for recording in self.ranks if recording.rank == rank), None)
