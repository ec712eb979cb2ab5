"""Where all ranks of this host are at one moment, from span files if any, else from /proc.

/proc costs three small reads a rank, of files that stay open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S, parse_stat
from grpo_doctor_probes.samplers.hostfiles import ProcFile
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.standing import (
    GONE,
    SILENT,
    SPINNING,
    STOPPED,
    Follower,
    Lengths,
    Standing,
)

# Before this age nothing is suspicious, and the /proc of recorded ranks is not even read.
_QUIET_NS = 3_000_000_000
# A thread that polls ten times a second stays far below; one that computes is far above.
BUSY_SHARE = 0.02
_SLEEPS = b"\nvoluntary_ctxt_switches:"
Marks = frozenset[tuple[int, str, tuple[int, int]]]
_FIELDS = 13  # of /proc/PID/stat, up to its time on a core


@dataclass(frozen=True, slots=True)
class Activity:
    """What /proc shows of a rank's main thread. Times are CLOCK_MONOTONIC.

    Attributes:
        state: its letter; GONE when the process was killed or failed.
        since_ns: when it was first seen in that state.
        busy_ns: when it was last seen to use its core.
        slept_ns: when it was last seen to have let go of its core by itself.
    """

    state: str
    since_ns: int
    busy_ns: int
    slept_ns: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """Where each rank was at `at_ns` (CLOCK_MONOTONIC), and by pid what /proc showed of ranks that
    had been there for some time."""

    standings: tuple[Standing, ...]
    activities: Mapping[int, Activity]
    at_ns: int

    def marks(self, pids: Collection[int]) -> Marks:
        """Return what changes as soon as one of these ranks moves.

        Of a rank that never sleeps it is only its place: an inspection makes it sleep.
        """
        return frozenset(
            (s.pid, s.place + self._stopped(s.pid), (0, 0) if s.place == SPINNING else s.mark)
            for s in self.standings
            if s.pid in pids
        )

    def _stopped(self, pid: int) -> str:
        activity = self.activities.get(pid)
        return STOPPED if activity is not None and activity.state == STOPPED else ""


class Observer:
    """Follows the ranks of a job and teaches `lengths` what is usual."""

    def __init__(self, lengths: Lengths, proc: Path = Path("/proc")) -> None:
        self._lengths, self._proc = lengths, proc
        self._threads: dict[int, _MainThread] = {}
        self._followers: dict[int, Follower] = {}
        self._back_ns = 0  # when the last absence ended

    def observe(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
        away_ns: int = 0,
    ) -> Moment:
        """Return where each rank is now.

        Args:
            headers: of the span files; those of other hosts are ignored.
            groups: the ranks' processes on this host.
            deaths: of the job's processes up to now.
            now_ns: CLOCK_MONOTONIC.
            away_ns: for how long no sample was possible before; then ages start again.
        """
        if away_ns:
            self.distrust()
            self._back_ns = now_ns
        mains = {group.main: group.rank for group in groups}
        recorded = {header.pid: header for header in headers if header.pid in mains}
        standings = [self._follow(header, now_ns) for header in recorded.values()]
        if away_ns:
            self.distrust()  # also what began just before the absence
        for pid in self._followers.keys() - mains.keys():
            del self._followers[pid]
        foreign = mains.keys() - recorded.keys()
        quiet = any(now_ns - s.since_ns > _QUIET_NS for s in standings)
        activities = self._look(list(mains) if quiet else foreign, now_ns)
        standings += [
            _unrecorded(pid, mains[pid], activities[pid], now_ns)
            for pid in foreign & activities.keys()
        ]
        finished = {header.pid for header in headers if header.closed_ns}
        for death in _failures(deaths, set(mains.values()), finished) if groups else ():
            subject = death.subject
            activities[subject.pid] = Activity(GONE, death.at_ns, death.at_ns)
            standings.append(
                Standing(subject.rank or 0, subject.pid, GONE, death.at_ns, first=False)
            )
        return self._since_back(Moment(tuple(standings), activities, now_ns))

    def distrust(self) -> None:
        """Never learn how long the phases that are open now take: the job was found stuck in them,
        or no sample was taken."""
        for follower in self._followers.values():
            follower.distrust()

    def close(self) -> None:
        """Close all files."""
        self._look((), 0)

    def _follow(self, header: Header, now_ns: int) -> Standing:
        follower = self._followers.setdefault(header.pid, Follower(self._lengths))
        return follower.follow(header, now_ns)

    def _look(self, pids: Collection[int], now_ns: int) -> dict[int, Activity]:
        activities = {}
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                if pid not in self._threads:
                    self._threads[pid] = _MainThread(self._proc / f"{pid}/task/{pid}", now_ns)
                activities[pid] = self._threads[pid].look(now_ns)
        for pid in self._threads.keys() - activities.keys():
            self._threads.pop(pid).close()
        return activities

    def _since_back(self, moment: Moment) -> Moment:
        """Return the moment without the part of each age that lies before the last absence."""
        if not (back_ns := self._back_ns):
            return moment
        standings = tuple(replace(s, seen_ns=back_ns) for s in moment.standings)
        activities = {
            pid: replace(activity, since_ns=max(activity.since_ns, back_ns))
            for pid, activity in moment.activities.items()
        }
        return Moment(standings, activities, moment.at_ns)


class _MainThread:
    """The main thread of one rank, and since when it is as it is."""

    def __init__(self, folder: Path, now_ns: int) -> None:
        self._stat, self._status = ProcFile(folder / "stat"), ProcFile(folder / "status")
        self._schedstat: ProcFile | None = None
        with contextlib.suppress(OSError):  # a kernel without CONFIG_SCHED_INFO
            self._schedstat = ProcFile(folder / "schedstat")
        self._state, self._since_ns = "", now_ns
        self._seen_ns, self._ran_ns = now_ns, 0
        self._busy_ns = self._slept_ns = now_ns
        self._sleeps = -1

    def look(self, now_ns: int) -> Activity:
        stat = parse_stat(self._stat.read_start(), _FIELDS)
        if self._schedstat is not None:
            ran_ns = int(self._schedstat.read_start().split()[0])
        else:
            ran_ns = stat.cpu_ticks * 1_000_000_000 // CLOCK_TICKS_PER_S
        if stat.state != self._state:
            self._state, self._since_ns = stat.state, now_ns
        if ran_ns - self._ran_ns > BUSY_SHARE * (now_ns - self._seen_ns):
            self._busy_ns = now_ns
        self._seen_ns, self._ran_ns = now_ns, ran_ns
        counted = self._status.read_start().partition(_SLEEPS)[2].split(maxsplit=1)
        sleeps = int(counted[0]) if counted else -1
        if sleeps != self._sleeps or not counted:  # gVisor does not count: never called busy
            self._sleeps, self._slept_ns = sleeps, now_ns
        return Activity(stat.state, self._since_ns, self._busy_ns, self._slept_ns)

    def close(self) -> None:
        for file in (self._stat, self._status, self._schedstat):
            if file is not None:
                file.close()


def _unrecorded(pid: int, rank: int, activity: Activity, now_ns: int) -> Standing:
    """Return where a rank without spans is: only its main thread is known."""
    runs = now_ns - activity.busy_ns <= _QUIET_NS
    place, since_ns = (SPINNING, activity.slept_ns) if runs else (SILENT, activity.busy_ns)
    return Standing(rank, pid, place, since_ns, first=True)


def _failures(
    deaths: Sequence[Death], ranks_here: Collection[int], finished: Collection[int]
) -> list[Death]:
    """Return the deaths of ranks that did not end in order and were not started again."""
    return [
        death
        for death in deaths
        if death.subject.rank not in {None, *ranks_here}
        and not death.in_order
        and death.subject.pid not in finished
    ]
