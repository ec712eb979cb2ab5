"""Where all ranks of this host are at one moment, from span files if any, else from /proc."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_doctor_probes.live import Header
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.mainthread import MainThreads
from grpo_doctor_probes.supervisor.standing import FIRST_S, Follower, Lengths, Standing
from grpo_doctor_probes.supervisor.suspicion import GONE, SILENT, SPINNING, Activity

# Before this age nothing is suspicious, and the /proc of recorded ranks is not even looked at.
_QUIET_NS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """Where each rank was at `at_ns` (CLOCK_MONOTONIC), and what /proc showed of those that had
    been there for some time, by pid."""

    standings: tuple[Standing, ...]
    activities: Mapping[int, Activity]
    at_ns: int


@dataclass
class _Unrecorded:
    """What was seen of a rank without spans since `found_ns`; `last_ns` by place.

    From the time when it was found stuck its places are `distrusted` until it leaves them.
    """

    found_ns: int
    last_ns: dict[str, int] = field(default_factory=dict)
    distrusted: set[str] = field(default_factory=set)

    def length_s(self, where: str, at_ns: int) -> float:
        """How long it was at a place that it left at `at_ns`; 0 where that is known already, or was
        found to be no example."""
        before_ns, self.last_ns[where] = self.last_ns.get(where, at_ns), at_ns
        if at_ns != before_ns and where in self.distrusted:
            self.distrusted.discard(where)
            return 0.0
        return (at_ns - before_ns) / 1e9


class Observer:
    """Follows the ranks of a job and teaches `lengths` what is usual."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._threads = MainThreads()
        self._followers: dict[int, Follower] = {}
        self._unrecorded: dict[int, _Unrecorded] = {}
        self._moved_ns: dict[int, int] = {}
        self._back_ns = 0  # when we were last away before

    def observe(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
        away_ns: int = 0,
    ) -> Moment:
        """Return where each rank stands, from all that is known of it now.

        Args:
            headers: of the span files; those of other hosts are passed over.
            groups: the ranks' processes on this host.
            deaths: of the job's processes up to now.
            now_ns: CLOCK_MONOTONIC.
            away_ns: for how long no sample was possible before; then ages start again.
        """
        if away_ns:
            self._come_back(now_ns, away_ns)
        mains = {group.main: group.rank for group in groups}
        recorded = {header.pid: header for header in headers if header.pid in mains}
        standings = [self._follow(header, now_ns) for header in recorded.values()]
        if away_ns:
            self.distrust()  # also what began just before we left
        self._forget(mains.keys())
        foreign = mains.keys() - recorded.keys()
        quiet = any(now_ns - s.since_ns > _QUIET_NS for s in standings)
        activities = self._threads.look(list(mains) if quiet else foreign, now_ns)
        standings += [
            self._stand_unrecorded(pid, mains[pid], activities[pid], now_ns)
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
        return self._since_they_moved(Moment(tuple(standings), activities, now_ns))

    def distrust(self) -> None:
        """The job was found stuck: what is open now is not an example of a usual length."""
        for follower in self._followers.values():
            follower.distrust()
        for own in self._unrecorded.values():
            own.distrusted = {SILENT, SPINNING}

    def _come_back(self, now_ns: int, away_ns: int) -> None:
        """Nothing of the time when we were away is an example, nor part of an age."""
        self.distrust()
        self._back_ns = now_ns
        for own in self._unrecorded.values():
            own.found_ns += away_ns

    def have_moved(self, pids: Iterable[int], now_ns: int) -> None:
        """Ranks that were found stuck have moved since, as finer marks show: they have been where
        they are now for no longer than that."""
        self._moved_ns |= dict.fromkeys(pids, now_ns)

    def learn_work(self, pids: Collection[int], earlier: Moment, now: Moment) -> bool:
        """Silent ranks were found well: what they did between the two moments is how they work.

        False where it is too little to distinguish work from polling.
        """
        before, after = earlier.activities, now.activities
        if not all(pid in before and pid in after for pid in pids):
            return False
        passed_ns = max(now.at_ns - earlier.at_ns, 1)
        ran = {pid: after[pid].ran_ns - before[pid].ran_ns for pid in pids}
        learned = [self._threads.expect_less(pid, ran[pid] / passed_ns) for pid in pids]
        return all(learned)

    def close(self) -> None:
        """Close all files."""
        self._threads.close()

    def _since_they_moved(self, moment: Moment) -> Moment:
        if not self._moved_ns and not self._back_ns:
            return moment
        moved_ns, back_ns = self._moved_ns, self._back_ns
        standings = tuple(
            replace(s, since_ns=max(s.since_ns, moved_ns.get(s.pid, 0)), seen_ns=back_ns)
            for s in moment.standings
        )
        activities = {
            pid: replace(activity, since_ns=max(activity.since_ns, moved_ns.get(pid, 0), back_ns))
            for pid, activity in moment.activities.items()
        }
        return Moment(standings, activities, moment.at_ns)

    def _follow(self, header: Header, now_ns: int) -> Standing:
        follower = self._followers.setdefault(header.pid, Follower(self._lengths))
        return follower.follow(header, now_ns)

    def _stand_unrecorded(self, pid: int, rank: int, look: Activity, now_ns: int) -> Standing:
        """A rank without spans: known is when its main thread last ran, and when it last slept.

        A rank that has made progress for as long as a first phase may take has shown what is usual
        for it, even if it never stood for long enough to be an example.
        """
        own = self._unrecorded.setdefault(pid, _Unrecorded(now_ns))
        for where, at_ns in ((SILENT, look.busy_ns), (SPINNING, look.slept_ns)):
            if (length_s := own.length_s(where, at_ns)) > _QUIET_NS / 1e9:
                self._lengths.learn(where, length_s)
        runs = now_ns - look.busy_ns <= _QUIET_NS
        where, since_ns = (SPINNING, look.slept_ns) if runs else (SILENT, look.busy_ns)
        is_usual = self._lengths.knows(where) or since_ns - own.found_ns > FIRST_S * 1e9
        return Standing(rank, pid, where, since_ns, first=not is_usual)

    def _forget(self, pids: Collection[int]) -> None:
        tables: tuple[dict[int, Any], ...] = (self._followers, self._unrecorded, self._moved_ns)
        for by_pid in tables:
            for pid in by_pid.keys() - pids:
                del by_pid[pid]


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
