"""Inspects a job that makes no progress, from outside.

A rank that is at one place for longer than three times what is usual there is suspicious. That is
no verdict: `grpo-doctor attach`, in a process of its own, inspects the job, and its verdict counts.
A wrong suspicion costs an inspection, and doubles the limit of its place.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.procs.procstat import state_of
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.inquiry import AT_MOST_S, ATTACH, Answer, Inquiry
from grpo_doctor_probes.supervisor.standing import (
    BETWEEN_PHASES,
    GONE,
    OUTSIDE_OF_PHASES,
    SILENT,
    SPINNING,
    STOPPED,
    Follower,
    Lengths,
    MainThread,
    Standing,
)

FOLDER = "hangs"
# A job that was found stuck is inspected again after so long, or as soon as its culprits move;
# then after twice as long, and so on.
AGAIN_NS = 60_000_000_000
RETRY_S, MOST_RETRY_S = 30.0, 600.0
FAILURES_SAID = 3
# Ticks come twice a second; a host that swaps may take some seconds for one. Where all ticks are so
# far apart the host is slow, and no one was away.
_AWAY_NS = 5_000_000_000
_OF_USUAL = 3
_NO_PHASE = frozenset({BETWEEN_PHASES, OUTSIDE_OF_PHASES, SILENT, SPINNING, GONE, STOPPED})


@dataclass(frozen=True, slots=True)
class Suspicion:
    """These ranks have been at `place` for `age_s` seconds."""

    ranks: tuple[int, ...]
    pids: frozenset[int]
    place: str
    age_s: float

    def in_words(self) -> str:
        """`rank 1 has been in reward for 95 s`."""
        several = len(self.ranks) > 1
        ranks = f"rank{'s' * several} {', '.join(map(str, self.ranks))}"
        place = self.place if self.place in _NO_PHASE else f"in {self.place}"
        return f"{ranks} {'have' if several else 'has'} been {place} for {self.age_s:.0f} s"


@dataclass(frozen=True, slots=True)
class Hang:
    """A job found stuck: what was suspected, when that was inspected (`asked_ns`), and what
    `attach` reported of it at `at_ns` (CLOCK_MONOTONIC)."""

    suspicion: Suspicion
    answer: Answer
    asked_ns: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """Where each rank is at `at_ns` (CLOCK_MONOTONIC); `mains` are the processes that train here.

    What was before `back_ns` is no part of an age: no one looked.
    """

    at_ns: int
    back_ns: int
    mains: tuple[int, ...]
    standings: tuple[Standing, ...]

    def marks(self, pids: frozenset[int]) -> frozenset[object]:
        """Return what changes as soon as one of these processes moves."""
        return frozenset(standing.mark for standing in self.standings if standing.pid in pids)

    def age_s(self, standing: Standing) -> float:
        """Return for how long a rank has been there, as far as that was seen."""
        return (self.at_ns - max(standing.since_ns, self.back_ns)) / 1e9


@dataclass(frozen=True, slots=True)
class _Look:
    """An inspection that is running: why, and how the job was when it began."""

    inquiry: Inquiry
    suspicion: Suspicion
    earlier: _Moment


class _Stuck:
    """A job that was found stuck: its culprits, and when it is worth another inspection.

    That is when all of them have moved, as far as that is seen from outside, and after a minute,
    two, four and so on; only an inspection distinguishes progress from a poll or an error.
    """

    def __init__(self, pids: frozenset[int], now: _Moment) -> None:
        self.pids = pids
        self._marks, self._at_ns, self._wait_s = now.marks(pids), now.at_ns, 0.0

    def is_due(self, now: _Moment) -> bool:
        """Return whether to inspect it now."""
        moved = not now.marks(self.pids) & self._marks
        wait_s = self._wait_s if moved else max(self._wait_s, AGAIN_NS / 1e9)
        return (now.at_ns - self._at_ns) / 1e9 > wait_s

    def was_inspected(self, now: _Moment) -> None:
        """Wait longer for the next one."""
        self._marks, self._at_ns = now.marks(self.pids), now.at_ns
        self._wait_s = min(max(RETRY_S, 2 * self._wait_s), MOST_RETRY_S)


class Watchdog:
    """Call `tick` about twice a second and `close` at the end; nothing in it waits."""

    def __init__(
        self,
        run_dir: Path,
        lengths: Lengths,
        *,
        say: Callable[[str], None],
        on_hang: Callable[[Hang], None],
        command: Sequence[str] = ATTACH,
    ) -> None:
        """Watch the job of a run.

        Args:
            run_dir: bundles of stuck jobs go into its `hangs/0`, `hangs/1` and so on.
            lengths: what is usual, or the user's own limit.
            say: takes a line for the user.
            on_hang: hears of each hang once.
            command: what inspects the job.
        """
        self.hangs: list[Hang] = []
        self._folder, self._lengths = run_dir / FOLDER, lengths
        self._say, self._on_hang, self._command = say, on_hang, command
        self._followers: dict[int, Follower] = {}
        self._threads: dict[int, MainThread] = {}
        self._stopped_ns: dict[int, int] = {}  # when a signal was seen to have stopped a rank
        self._seen_ns: int | None = None
        self._usual_ns = 0
        self._usual_since_ns = self._back_ns = 0  # when a hang or an absence ended
        self._look: _Look | None = None
        self._stuck: _Stuck | None = None
        self._failures = 0  # in a row
        self._not_before_s = 0.0
        self._places_mentioned: set[str] = set()

    def tick(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
    ) -> None:
        """Take in how the job is, and act on it.

        Args:
            headers: of the span files; those of other hosts are ignored.
            groups: the ranks' processes on this host.
            deaths: of the job's processes up to now.
            now_ns: CLOCK_MONOTONIC.
        """
        if self._was_away(now_ns):
            self.rest()  # an inspection that is running has met a job that was stopped with us
            self._seen_ns = self._usual_since_ns = self._back_ns = now_ns
        now = self._moment(headers, groups, deaths, now_ns)
        if self._stuck is not None and not now.marks(self._stuck.pids):
            self._stuck = None  # its ranks have ended
        if self._look is not None:
            if (answer := self._look.inquiry.poll()) is not None:
                self._take(self._look, answer, now)
        elif now.mains and self._stuck is not None:
            if self._stuck.is_due(now):
                self._ask(self.hangs[-1].suspicion, now)
        elif (
            now.mains
            and now_ns / 1e9 >= self._not_before_s
            and (late := self._suspect(now)) is not None
        ):
            self._ask(late, now)

    def rest(self) -> None:
        """The job is ending: what its ranks do on their way out is not a hang."""
        self._seen_ns = None
        if self._look is not None:
            look, self._look = self._look, None
            look.inquiry.cancel()
            look.inquiry.discard()

    def close(self, *, wait_s: float) -> None:
        """Give a running inspection `wait_s` seconds to answer, then end it."""
        if self._look is not None and self._stuck is None and wait_s:
            answer = self._look.inquiry.wait(wait_s)
            if answer is not None and answer.hangs:
                look, self._look = self._look, None
                self._report(look, answer, time.monotonic_ns())
        self.rest()

    def _was_away(self, now_ns: int) -> bool:
        """Return whether we were stopped with the job by Ctrl-Z, or suspended by a scheduler.

        How long something took meanwhile says nothing of how long it usually takes.
        """
        passed_ns = 0 if self._seen_ns is None else now_ns - self._seen_ns
        away = passed_ns > max(_AWAY_NS, _OF_USUAL * self._usual_ns)
        self._seen_ns, self._usual_ns = now_ns, passed_ns
        return away

    def _moment(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
    ) -> _Moment:
        ranks = {group.main: group.rank for group in groups}
        recorded = {header.pid: header for header in headers if header.pid in ranks}
        followers, self._followers = self._followers, {}
        threads, self._threads = self._threads, {}
        stopped = [pid for pid in ranks if state_of(f"/proc/{pid}") == "T"]
        self._stopped_ns = {pid: self._stopped_ns.get(pid, now_ns) for pid in stopped}
        standings = []
        for pid, rank in ranks.items():
            if (header := recorded.get(pid)) is not None:
                follower = self._followers[pid] = followers.get(pid) or Follower(self._lengths)
                standings.append(follower.follow(header, now_ns, self._usual_since_ns))
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                thread = threads.get(pid) or MainThread(pid, rank, now_ns)
                standings.append(thread.look(now_ns))
                self._threads[pid] = thread
        for index, standing in enumerate(standings):
            if (since_ns := self._stopped_ns.get(standing.pid)) is not None:
                standings[index] = Standing(standing.rank, standing.pid, STOPPED, since_ns)
        in_order = {header.pid for header in headers if header.closed_ns}
        for death in deaths if groups else ():
            subject, here = death.subject, {None, *ranks.values()}
            if not (subject.rank in here or death.in_order or subject.pid in in_order):
                standings.append(Standing(subject.rank or 0, subject.pid, GONE, death.at_ns))
        return _Moment(now_ns, self._back_ns, tuple(ranks), tuple(standings))

    def _suspect(self, now: _Moment) -> Suspicion | None:
        """About those at the place where a rank has been longest, of the ranks that are late.

        A rank that waits does so for the slowest, so those that don't wait come first.
        """
        late = [s for s in now.standings if now.age_s(s) > self._lengths.limit_s(s)]
        still = [s for s in late if s.place in (GONE, STOPPED)]
        late = still or [s for s in late if not s.waits] or late
        if not late:
            return None
        oldest = max(late, key=lambda s: (now.age_s(s), -s.rank))
        same = sorted((s for s in late if s.place == oldest.place), key=lambda s: s.rank)
        ranks, pids = tuple(s.rank for s in same), frozenset(s.pid for s in same)
        return Suspicion(ranks, pids, oldest.place, now.age_s(oldest))

    def _ask(self, suspicion: Suspicion, now: _Moment) -> None:
        folder, allowed_s = self._folder / str(len(self.hangs)), AT_MOST_S * 2**self._failures
        try:
            inquiry = Inquiry(now.mains, folder, command=self._command, at_most_s=allowed_s)
        except OSError as problem:
            self._bear(f"can't inspect the job: {problem}", now)
            return
        self._look = _Look(inquiry, suspicion, now)

    def _take(self, look: _Look, answer: Answer, now: _Moment) -> None:
        self._look = None
        culprits = frozenset(s.pid for s in now.standings if s.rank in answer.culprits)
        pids = culprits or look.suspicion.pids
        if self._stuck is not None:
            self._take_again(self._stuck, pids, look, answer, now)
        elif answer.hangs and now.marks(pids) & look.earlier.marks(pids):
            self._stuck = _Stuck(pids, now)
            self._report(look, answer, now.at_ns)
        else:
            look.inquiry.discard()
            self._continue(answer, look, now)

    def _take_again(
        self, stuck: _Stuck, pids: frozenset[int], look: _Look, answer: Answer, now: _Moment
    ) -> None:
        """Take in a later inspection of a stuck job: whether it moves, or is stuck otherwise."""
        stuck.was_inspected(now)
        if answer.hangs and answer.cause != self.hangs[-1].answer.cause:
            self._stuck = _Stuck(pids, now)
            self._report(look, answer, now.at_ns)
            return
        look.inquiry.discard()
        if answer.state in ("healthy", "slow"):
            self._stuck, self._usual_since_ns = None, now.at_ns
            self._say("the job moves again")

    def _report(self, look: _Look, answer: Answer, now_ns: int) -> None:
        self._failures = 0
        self.hangs.append(Hang(look.suspicion, answer, look.earlier.at_ns, now_ns))
        self._on_hang(self.hangs[-1])

    def _continue(self, answer: Answer, look: _Look, now: _Moment) -> None:
        """The job is not known to be stuck: inspect it later next time."""
        if answer.state == "refused":
            self._not_before_s = math.inf
            self._say(
                f"whether the job is stuck is unknown, and won't be checked again: {answer.summary}"
            )
        elif answer.state == "failed":
            self._bear(f"the inspection of the job failed: {answer.summary}", now)
        elif answer.state == "gone":  # it ends
            self._not_before_s = now.at_ns / 1e9 + RETRY_S
        elif not answer.hangs:  # else it has moved meanwhile
            self._failures = 0
            self._mention(answer, look.suspicion)
            for standing in look.earlier.standings:
                self._lengths.tolerate(standing.place, look.earlier.age_s(standing))

    def _mention(self, answer: Answer, suspicion: Suspicion) -> None:
        if answer.state == "healthy" or suspicion.place in self._places_mentioned:
            return
        self._places_mentioned.add(suspicion.place)
        verdict = "no reason found yet" if answer.state == "unknown" else "slow, not stuck"
        self._say(f"{suspicion.in_words()}; {verdict}: {answer.summary}")

    def _bear(self, problem: str, now: _Moment) -> None:
        self._not_before_s = now.at_ns / 1e9 + min(RETRY_S * 2**self._failures, MOST_RETRY_S)
        self._failures += 1
        if self._failures <= FAILURES_SAID:
            last = "; retrying silently" * (self._failures == FAILURES_SAID)
            self._say(f"{problem}{last}")
