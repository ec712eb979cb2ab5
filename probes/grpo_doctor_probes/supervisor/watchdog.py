"""Inspects a job that makes no progress, from outside.

It never judges: `grpo-doctor attach`, in a process of its own, inspects what is suspicious, and its
verdict counts. A wrong suspicion costs an inspection, and doubles the limit of its phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.procs.live import Header
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.inquiry import AT_MOST_S, ATTACH, Answer, Inquiry
from grpo_doctor_probes.supervisor.observe import Marks, Moment, Observer
from grpo_doctor_probes.supervisor.standing import Lengths
from grpo_doctor_probes.supervisor.suspicion import (
    Presence,
    Retries,
    Suspicion,
    longer_s,
    suspect,
)

FOLDER = "hangs"
# When `look_again` wants a second inspection of a job that was found stuck.
AGAIN_NS = 60_000_000_000
FAILURES_SAID = 3


@dataclass(frozen=True, slots=True)
class Hang:
    """A job found stuck: what was suspected, when that was first inspected (`asked_ns`), and what
    `attach` reported of it at `at_ns` (CLOCK_MONOTONIC)."""

    suspicion: Suspicion
    answer: Answer
    asked_ns: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class _Look:
    """An inspection that is running: why, and how the job was when it began.

    `compares`: the job is stuck, and its evidence is kept a second time.
    """

    inquiry: Inquiry
    suspicion: Suspicion
    earlier: Moment
    compares: bool = False

    def give_up(self) -> None:
        self.inquiry.cancel()
        self.inquiry.discard()


class _Stuck:
    """A job that was found stuck: its ranks, and when it is worth another inspection.

    That is when all of these ranks have moved, as far as that is seen from outside, and after a
    minute, two, four and so on; only an inspection distinguishes progress from a poll or an error.
    """

    def __init__(self, pids: frozenset[int], now: Moment) -> None:
        self.pids, self.compared = pids, False
        self._marks, self._at_ns, self._wait_s = now.marks(pids), now.at_ns, 0.0

    def is_due(self, now: Moment) -> bool:
        """Return whether to inspect it now."""
        passed_s = (now.at_ns - self._at_ns) / 1e9
        moved = not now.marks(self.pids) & self._marks
        return passed_s > (self._wait_s if moved else max(self._wait_s, AGAIN_NS / 1e9))

    def was_inspected(self, now: Moment) -> None:
        """Wait longer for the next one."""
        self._marks, self._at_ns = now.marks(self.pids), now.at_ns
        self._wait_s = longer_s(self._wait_s)


class Watchdog:
    """Call `tick` about twice a second and `close` at the end; nothing in it waits.

    With `look_again` a job that is still stuck a minute later is inspected once more for each hang,
    into `hangs/0-again`.
    """

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
        self.look_again = False
        self._folder, self._lengths = run_dir / FOLDER, lengths
        self._say, self._on_hang, self._command = say, on_hang, command
        self._observer, self._presence = Observer(lengths), Presence()
        self._look: _Look | None = None
        self._stuck: _Stuck | None = None
        self._retries = Retries()
        self._first_asked: tuple[Marks, int] = (frozenset(), 0)
        self._places_mentioned: set[str] = set()

    def tick(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
    ) -> None:
        """Take in how the job is at `now_ns` (CLOCK_MONOTONIC), and act on it.

        `headers`, `groups` and `deaths` are those of `Observer.observe`.
        """
        if away_ns := self._presence.missed_ns(now_ns):
            self.rest()  # an inspection that is running has met a job that was stopped with us
        now = self._observer.observe(headers, groups, deaths, now_ns, away_ns)
        pids = [group.main for group in groups]
        if self._stuck is not None and not now.marks(self._stuck.pids):
            self._stuck = None  # its ranks have ended
        if self._look is not None:
            if (answer := self._look.inquiry.poll()) is not None:
                self._take(self._look, answer, now)
        elif pids and self._stuck is not None:
            compares = self.look_again and not self._stuck.compared
            if compares and now_ns - self.hangs[-1].at_ns > AGAIN_NS:
                self._ask(self.hangs[-1].suspicion, now, pids, compares=True)
            elif self._stuck.is_due(now):
                self._ask(self.hangs[-1].suspicion, now, pids)
        elif pids:
            suspicion = suspect(now.standings, now.activities, self._lengths, now_ns)
            if suspicion is not None and self._retries.due(now.marks(suspicion.pids), now_ns):
                self._ask(suspicion, now, pids)

    def rest(self) -> None:
        """The job is ending: what its ranks do on their way out is not a hang."""
        self._presence.pause()
        if self._look is not None:
            look, self._look = self._look, None
            look.give_up()

    def close(self, *, wait_s: float) -> None:
        """Give a running inspection `wait_s` seconds to answer, then end it."""
        if self._look is not None and self._stuck is None and wait_s:
            answer = self._look.inquiry.wait(wait_s)
            if answer is not None and answer.hangs:
                look, self._look = self._look, None
                self._report(look, answer, time.monotonic_ns())
        self.rest()
        self._observer.close()

    def _report(self, look: _Look, answer: Answer, now_ns: int) -> None:
        self.hangs.append(Hang(look.suspicion, answer, self._first_asked[1], now_ns))
        self._on_hang(self.hangs[-1])

    def _ask(
        self,
        suspicion: Suspicion,
        now: Moment,
        pids: Sequence[int],
        *,
        compares: bool = False,
    ) -> None:
        folder = f"{len(self.hangs) - 1}-again" if compares else str(len(self.hangs))
        allowed_s = AT_MOST_S * 2**self._retries.failures
        try:
            inquiry = Inquiry(
                pids, self._folder / folder, command=self._command, at_most_s=allowed_s
            )
        except OSError as problem:
            self._bear(f"can't inspect the job: {problem}", now.at_ns)
            return
        self._look = _Look(inquiry, suspicion, now, compares)
        marks = now.marks(suspicion.pids)
        if self._stuck is None and not marks & self._first_asked[0]:
            self._first_asked = (marks, now.at_ns)

    def _take(self, look: _Look, answer: Answer, now: Moment) -> None:
        self._look = None
        culprits = [s.pid for s in now.standings if s.rank in answer.culprits]
        pids = frozenset(culprits or look.suspicion.pids)
        hangs = answer.hangs and bool(now.marks(pids) & look.earlier.marks(pids))
        if self._stuck is not None:
            self._take_again(self._stuck, pids, look, answer, now)
        elif hangs:
            self._found(pids, look, answer, now)
        else:
            look.inquiry.discard()
            self._continue(answer, look, now)

    def _found(self, pids: frozenset[int], look: _Look, answer: Answer, now: Moment) -> None:
        self._stuck = _Stuck(pids, now)
        self._retries.settle()
        self._observer.distrust()
        self._report(look, answer, now.at_ns)

    def _take_again(
        self, stuck: _Stuck, pids: frozenset[int], look: _Look, answer: Answer, now: Moment
    ) -> None:
        """Take in a later inspection of a stuck job: whether it moves, or is stuck otherwise."""
        stuck.was_inspected(now)
        if look.compares:
            stuck.compared = True
            self._say(f"a minute later: {answer.summary}")
        elif answer.hangs and answer.cause != self.hangs[-1].answer.cause:
            self._found(pids, look, answer, now)
            return
        else:
            look.inquiry.discard()
        if answer.state in ("healthy", "slow"):
            self._stuck = None
            self._say("the job moves again")

    def _continue(self, answer: Answer, look: _Look, now: Moment) -> None:
        """The job is not known to be stuck."""
        if answer.hangs:  # it has moved meanwhile
            self._retries.settle()
        elif answer.state == "gone":  # it ends
            self._retries.put_off(look.earlier.marks(look.suspicion.pids), now.at_ns)
        elif answer.state == "refused":
            self._retries.give_up()
            self._say(
                f"whether the job is stuck is unknown, and won't be checked again: {answer.summary}"
            )
        elif answer.state == "failed":
            self._bear(f"the inspection of the job failed: {answer.summary}", now.at_ns)
        else:
            self._retries.settle()
            self._calm(answer, look, now)

    def _calm(self, answer: Answer, look: _Look, now: Moment) -> None:
        """It is healthy, slow or still unknown: inspect later next time."""
        suspicion = look.suspicion
        if answer.state == "unknown":
            verdict = f"no reason found yet: {answer.summary}"
        else:
            verdict = f"{answer.state}, not stuck: {answer.summary}"
        if answer.state != "healthy" and suspicion.place not in self._places_mentioned:
            self._places_mentioned.add(suspicion.place)
            self._say(f"{suspicion.in_words()}; {verdict}")
        if suspicion.why != "long" or answer.state == "unknown":
            self._retries.put_off(look.earlier.marks(suspicion.pids), now.at_ns)
            return
        for standing in look.earlier.standings:  # and of those that wait for the suspected
            if standing.pid in suspicion.pids or standing.waits:
                self._lengths.tolerate(standing.place, standing.age_s(look.earlier.at_ns))

    def _bear(self, problem: str, now_ns: int) -> None:
        self._retries.fail(now_ns)
        if self._retries.failures <= FAILURES_SAID:
            last = "; retrying silently" * (self._retries.failures == FAILURES_SAID)
            self._say(f"{problem}{last}")
