"""When a job is worth an inspection. A suspicion is not a verdict: it costs one inspection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_doctor_probes.supervisor.observe import Activity, Marks
from grpo_doctor_probes.supervisor.standing import (
    BETWEEN_PHASES,
    GONE,
    OUTSIDE_OF_PHASES,
    STOPPED,
    UNRECORDED,
    Lengths,
    Standing,
)

# Looks come twice a second; a host that swaps may take some seconds for one.
_AWAY_NS = 5_000_000_000
# Where all looks are so far apart the host is slow, and nobody was away.
_OF_USUAL = 3
# After a first look that could not tell or went wrong, then twice as long, and so on.
RETRY_S, MOST_RETRY_S = 30.0, 600.0
Why = Literal["gone", "stopped", "timeout", "long"]
# A rank that is stopped, or gone while its launcher stays, is no matter of usual lengths. The time
# lets torchrun end the other ranks, which takes it up to a second, and a debugger look around.
STANDSTILL_S = 10.0
# A thread that computes and waited for a page or a lock at the last look is still at work.
_BUSY_FOR_NS = 5_000_000_000
_STANDSTILLS: tuple[tuple[str, Why], ...] = ((GONE, "gone"), (STOPPED, "stopped"))


def longer_s(wait_s: float) -> float:
    """Return how long to wait next, after a wait of so long that was not enough."""
    return min(max(RETRY_S, 2 * wait_s), MOST_RETRY_S)


class Presence:
    """Records every sample, and reports those that come after an absence.

    We are away while we are stopped with the job by Ctrl-Z, or suspended by a scheduler. How long
    something took without samples says nothing of how long it usually takes.
    """

    def __init__(self) -> None:
        self._seen_ns: int | None = None
        self._usual_ns = 0

    def missed_ns(self, now_ns: int) -> int:
        """Return how long we were away until this look (CLOCK_MONOTONIC); 0 if we were not."""
        passed_ns = 0 if self._seen_ns is None else now_ns - self._seen_ns
        away = passed_ns > max(_AWAY_NS, _OF_USUAL * self._usual_ns)
        self._seen_ns, self._usual_ns = now_ns, passed_ns
        return passed_ns if away else 0

    def pause(self) -> None:
        """There are no looks for now, by intent."""
        self._seen_ns = None


class Retries:
    """Remembers what was put off, and until when. Times are CLOCK_MONOTONIC nanoseconds.

    A suspicion that an inspection has not settled is inspected again, later and later. That holds
    for one and the same suspicion. Ranks that have moved since and stand still again are
    another one, which waits for nothing.
    """

    def __init__(self) -> None:
        self.failures = 0  # in a row
        self._marks: Marks = frozenset()
        self._not_before_ns = self._failed_until_ns = 0
        self._wait_s = RETRY_S
        self._given_up = False

    def due(self, marks: Marks, now_ns: int) -> bool:
        """Return whether a suspicion is to be looked at now; `marks` are what changes with it."""
        if self._given_up or now_ns < self._failed_until_ns:
            return False
        return now_ns >= self._not_before_ns or not marks & self._marks

    def put_off(self, marks: Marks, now_ns: int) -> None:
        """An inspection of it had no result."""
        if not marks & self._marks:
            self._wait_s = RETRY_S
        self._marks = marks
        self._not_before_ns = now_ns + int(self._wait_s * 1e9)
        self._wait_s = longer_s(self._wait_s)

    def fail(self, now_ns: int) -> None:
        """An inspection failed, perhaps for an unrelated reason."""
        wait_s = min(RETRY_S * 2**self.failures, MOST_RETRY_S)
        self._failed_until_ns = now_ns + int(wait_s * 1e9)
        self.failures += 1

    def settle(self) -> None:
        """An inspection succeeded."""
        self.failures = 0

    def give_up(self) -> None:
        """No look will ever go well."""
        self._given_up = True


@dataclass(frozen=True, slots=True)
class Suspicion:
    """These ranks have been at `place` for `age_s` seconds; `limit_s` was the limit."""

    ranks: tuple[int, ...]
    pids: tuple[int, ...]
    place: str
    age_s: float
    limit_s: float
    why: Why

    def in_words(self) -> str:
        """`rank 1 has been in reward for 95 s`."""
        several = len(self.ranks) > 1
        ranks = f"rank{'s' * several} {', '.join(map(str, self.ranks))}"
        state = self.why if self.why in ("gone", "stopped") else in_place(self.place)
        return f"{ranks} {'have' if several else 'has'} been {state} for {self.age_s:.0f} s"


def in_place(place: str) -> str:
    """`in reward`, `between phases`."""
    plain = (BETWEEN_PHASES, OUTSIDE_OF_PHASES, *UNRECORDED)
    return place if place in plain else f"in {place}"


def suspect(
    standings: Sequence[Standing], activities: Mapping[int, Activity], lengths: Lengths, now_ns: int
) -> Suspicion | None:
    """Return the most telling suspicion, if there is any; the order of ranks does not matter.

    Args:
        standings: the ranks of this host.
        activities: by pid, of those whose /proc was looked at.
        lengths: what is usual.
        now_ns: CLOCK_MONOTONIC.
    """
    for state, why in _STANDSTILLS:
        still = {s: a for s in standings if (a := activities.get(s.pid)) and a.state == state}
        age_s = max(((now_ns - a.since_ns) / 1e9 for a in still.values()), default=0.0)
        if age_s > STANDSTILL_S:
            return _about(tuple(still), age_s, STANDSTILL_S, why)
    at_most_s = lengths.collective_limit_s
    # Of a rank without spans nobody knows whether it is in a collective.
    may_wait = [s for s in standings if s.waits or s.place in UNRECORDED]
    due = [s for s in may_wait if s.age_s(now_ns) > at_most_s]
    if due:
        return _oldest(due, at_most_s, "timeout", now_ns)
    limits_s = {s: lengths.limit_s(s.place, first=s.first) for s in standings}
    late = [s for s in standings if s.age_s(now_ns) > limits_s[s]]
    in_time = [s for s in standings if s not in late and not s.waits]
    at_work = any(_is_busy(activities.get(s.pid), now_ns) for s in in_time)
    # Who waits does so for the slowest: while that one computes, it is judged by its own limit.
    chosen = [s for s in late if not s.waits] or ([] if at_work else late)
    if not chosen:
        return None
    return _oldest(chosen, min(limits_s[s] for s in chosen), "long", now_ns)


def _is_busy(activity: Activity | None, now_ns: int) -> bool:
    return activity is not None and now_ns - activity.busy_ns <= _BUSY_FOR_NS


def _oldest(chosen: Sequence[Standing], limit_s: float, why: Why, now_ns: int) -> Suspicion:
    """About those at the place where a rank has been longest."""
    oldest = max(chosen, key=lambda s: (s.age_s(now_ns), -s.rank))
    same = tuple(s for s in chosen if s.place == oldest.place)
    return _about(same, oldest.age_s(now_ns), limit_s, why)


def _about(chosen: Sequence[Standing], age_s: float, limit_s: float, why: Why) -> Suspicion:
    ordered = sorted(chosen, key=lambda s: s.rank)
    return Suspicion(
        ranks=tuple(s.rank for s in ordered),
        pids=tuple(s.pid for s in ordered),
        place=ordered[0].place,
        age_s=age_s,
        limit_s=limit_s,
        why=why,
    )
