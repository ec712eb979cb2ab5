"""Whether ranks that were found stuck have moved since, though they may stand still again by now.

A sample shows how a rank is at that moment; only counters show what it did between two samples: how
long its main thread ran, how often it let go of its core, and when its latest span began. What
counts is what the suspicion goes by: spans of a rank that has some, else its main thread.

The main thread of a stuck rank need not be at rest: it may poll, and a tool that stops it to read
its stack wakes it up. What it did while it was looked at and found stuck is the example of what a
stuck one does; only what goes beyond that is progress.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.observe import Moment
from grpo_doctor_probes.supervisor.standing import Standing
from grpo_doctor_probes.supervisor.suspicion import (
    GONE,
    SILENT,
    SPINNING,
    STOPPED,
    UNRECORDED,
    Activity,
)

Fate = Literal["still", "moved", "ended"]

# What makes a main thread busy for the half second between two looks: `mainthread.BUSY_SHARE`.
MOVED_NS = 10_000_000
# Of a thread that never sleeps. A look at it stops it a few times, and each stop counts as a sleep.
MOVED_SLEEPS = 8
# A rank that gives up, as torch's own timeout makes it, says so at length before it ends: progress
# is what a job outlives for so long.
OUTLIVES_NS = 3_000_000_000
# Less than this is not progress even of one that did nothing while it was looked at: a request that
# is made again once a minute, a signal, somebody else's py-spy.
_IDLE_NS_PER_S, _IDLE_SLEEPS_PER_S = 1_000_000.0, 1.0
_OF_EXAMPLE = 2.0


class StuckRanks:
    """The ranks that stood still from the start of an inspection to its verdict.

    Attributes:
        pids: their processes; none if all have moved before there was a verdict.
        moved_ns: when all of them were seen to have moved; None until then.
    """

    def __init__(self, suspected: Collection[int], earlier: Moment, judged: Moment) -> None:
        """Those of the `suspected` processes that have not moved since `earlier`."""
        self.moved_ns: int | None = None
        stood = {s.pid: s for s in earlier.standings if s.pid in suspected}
        self._ranks = [
            _StuckRank(standing, earlier, judged)
            for standing in judged.standings
            if standing.pid in stood and _stands(stood[standing.pid], standing, earlier, judged)
        ]
        self.pids = frozenset(rank.pid for rank in self._ranks)

    def fate(self, now: Moment, deaths: Sequence[Death]) -> Fate:
        """`moved` once all that are left have moved and outlived it; call it at every look."""
        standings = {standing.pid: standing for standing in now.standings}
        living = [rank for rank in self._ranks if rank.pid in standings]
        for rank in living:
            rank.follow(standings[rank.pid], now.activities.get(rank.pid), now.at_ns)
        failed = {death.subject.pid for death in deaths if not death.in_order}
        if not living or any(rank.pid in failed and rank.place != GONE for rank in self._ranks):
            return "ended"
        if self.moved_ns is None and all(rank.moved for rank in living):
            self.moved_ns = now.at_ns
        outlived = self.moved_ns is not None and now.at_ns - self.moved_ns >= OUTLIVES_NS
        return "moved" if outlived else "still"


class _StuckRank:
    """One of them, from its verdict on."""

    def __init__(self, standing: Standing, earlier: Moment, judged: Moment) -> None:
        self.pid, self.place, self.moved = standing.pid, standing.place, False
        self._mark = standing.mark
        before, after = earlier.activities.get(self.pid), judged.activities.get(self.pid)
        self._slept = after.sleeps if after else 0
        self._ran: Beyond | None = None
        self._woke: Beyond | None = None
        if before is None or after is None:
            return
        seconds = max((judged.at_ns - earlier.at_ns) / 1e9, 1e-3)
        if self.place == SPINNING:
            example = (after.sleeps - before.sleeps) / seconds
            self._woke = Beyond(example, _IDLE_SLEEPS_PER_S, after.sleeps, judged.at_ns)
        elif self.place == SILENT or after.state == STOPPED:
            example = (after.ran_ns - before.ran_ns) / seconds
            self._ran = Beyond(example, _IDLE_NS_PER_S, after.ran_ns, judged.at_ns)

    def follow(self, standing: Standing, activity: Activity | None, now_ns: int) -> None:
        """Take in how it stands now."""
        if self.place not in UNRECORDED and standing.place not in UNRECORDED:
            self.moved |= standing.mark != self._mark
        if activity is None:
            return
        if self._ran is not None:
            self.moved |= self._ran.grown(activity.ran_ns, now_ns) > MOVED_NS
        if self._woke is not None:
            self.moved |= self._woke.grown(activity.sleeps, now_ns) > MOVED_SLEEPS
            self.moved |= standing.place == SILENT and activity.sleeps > self._slept


class Beyond:
    """By how much a counter grew beyond what a stuck rank's grows by itself.

    Growth and what explains it are set off at every look, so that hours of rest afterwards do not
    hide a progress of seconds, nor how long an inspection was delayed.
    """

    def __init__(self, example_per_s: float, idle_per_s: float, counted: int, at_ns: int) -> None:
        """From `counted` at `at_ns` on; by itself it grows as the example did, or idly."""
        self._explained_per_s = max(_OF_EXAMPLE * example_per_s, idle_per_s)
        self._counted, self._at_ns, self._beyond = counted, at_ns, 0.0

    def grown(self, counted: int, now_ns: int) -> float:
        """Return the unexplained part up to now."""
        explained = self._explained_per_s * (now_ns - self._at_ns) / 1e9
        self._beyond = max(0.0, self._beyond + counted - self._counted - explained)
        self._counted, self._at_ns = counted, now_ns
        return self._beyond


def _stands(was: Standing, is_now: Standing, earlier: Moment, judged: Moment) -> bool:
    """Return whether it has not moved while it was looked at."""
    if was.place == is_now.place == SPINNING:
        before, after = earlier.activities[was.pid], judged.activities[was.pid]
        return after.sleeps - before.sleeps <= MOVED_SLEEPS
    return was.mark == is_now.mark
