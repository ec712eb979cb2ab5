"""Where all ranks of this host stand at one moment, from span files where there are some, else
from /proc."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from grpo_doctor_probes.supervisor.lengths import Lengths
from grpo_doctor_probes.supervisor.mainthread import MainThreads
from grpo_doctor_probes.supervisor.standing import Follower, Standing
from grpo_doctor_probes.supervisor.suspicion import GONE, SILENT, Activity

if TYPE_CHECKING:
    from grpo_doctor_probes.live import Header
    from grpo_doctor_probes.samplers.jobtree import RankGroup
    from grpo_doctor_probes.supervisor.deaths import Death

# Before this age nothing is suspicious, and the /proc of recorded ranks is not even looked at.
_QUIET_NS = 3_000_000_000


class Observer:
    """Follows the ranks of a job and teaches `lengths` what is usual."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._threads = MainThreads()
        self._followers: dict[int, Follower] = {}
        self._busy_ns: dict[int, int] = {}

    def observe(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
    ) -> tuple[tuple[Standing, ...], dict[int, Activity]]:
        """Where each rank stands, and what /proc says of those that stand for some time, by pid.

        Args:
            headers: of the span files; those of other hosts are passed over.
            groups: the ranks' processes on this host.
            deaths: of the job's processes up to now.
            now_ns: CLOCK_MONOTONIC.
        """
        mains = {group.main: group.rank for group in groups}
        recorded = {header.pid: header for header in headers if header.pid in mains}
        standings = [self._follow(header, now_ns) for header in recorded.values()]
        self._forget(mains.keys())
        foreign = mains.keys() - recorded.keys()
        quiet = any(now_ns - s.since_ns > _QUIET_NS for s in standings)
        activities = self._threads.look(list(mains) if quiet else foreign, now_ns)
        standings += [
            self._stand_silent(pid, mains[pid], activities[pid].busy_ns)
            for pid in foreign & activities.keys()
        ]
        if groups:
            finished = {header.pid for header in headers if header.closed_ns}
            for death in _failures(deaths, set(mains.values()), finished):
                subject = death.subject
                activities[subject.pid] = Activity(GONE, death.at_ns, death.at_ns)
                standings.append(
                    Standing(subject.rank or 0, subject.pid, GONE, death.at_ns, first=False)
                )
        return tuple(standings), activities

    def distrust(self) -> None:
        """The job was found stuck: what is open now is no example of a usual length."""
        for follower in self._followers.values():
            follower.distrust()

    def close(self) -> None:
        """Closes all files."""
        self._threads.close()

    def _follow(self, header: Header, now_ns: int) -> Standing:
        follower = self._followers.setdefault(header.pid, Follower(self._lengths))
        return follower.follow(header, now_ns)

    def _stand_silent(self, pid: int, rank: int, busy_ns: int) -> Standing:
        """A rank without spans: all that is known is when its main thread last did something."""
        before_ns = self._busy_ns.get(pid)
        if before_ns is not None and busy_ns - before_ns > _QUIET_NS:
            self._lengths.learn(SILENT, (busy_ns - before_ns) / 1e9)
        self._busy_ns[pid] = busy_ns
        return Standing(rank, pid, SILENT, busy_ns, first=not self._lengths.knows(SILENT))

    def _forget(self, pids: Collection[int]) -> None:
        for gone in self._followers.keys() - pids:
            del self._followers[gone]
        for gone in self._busy_ns.keys() - pids:
            del self._busy_ns[gone]


def _failures(
    deaths: Sequence[Death], ranks_here: Collection[int], finished: Collection[int]
) -> list[Death]:
    """The deaths of ranks that did not end in order and were not started again."""
    return [
        death
        for death in deaths
        if death.subject.rank is not None
        and death.subject.rank not in ranks_here
        and not death.in_order
        and death.subject.pid not in finished
    ]
