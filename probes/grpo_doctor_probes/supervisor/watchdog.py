"""Inspects a job that makes no progress, from outside.

It never judges: what is suspicious is looked at by `grpo-doctor attach` in a process of its own,
and that one's verdict counts. A wrong suspicion costs an inspection, and doubles the limit of
its phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.live import Header
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death
from grpo_doctor_probes.supervisor.inquiry import AT_MOST_S, ATTACH, Answer, Inquiry
from grpo_doctor_probes.supervisor.observe import Moment, Observer
from grpo_doctor_probes.supervisor.recovery import StuckRanks
from grpo_doctor_probes.supervisor.standing import Lengths
from grpo_doctor_probes.supervisor.suspicion import (
    SILENT,
    SPINNING,
    Marks,
    Presence,
    Retries,
    Suspicion,
    suspect,
)

FOLDER = "hangs"
# When `look_again` wants a second look at a job that was found stuck.
AGAIN_NS = 60_000_000_000
FAILURES_SAID = 3


@dataclass(frozen=True, slots=True)
class Hang:
    """A job found stuck: what was suspected, when that was first looked at (`asked_ns`), and what
    `attach` reported of it at `at_ns` (CLOCK_MONOTONIC)."""

    suspicion: Suspicion
    answer: Answer
    asked_ns: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class _Look:
    """One that is under way: why, and how the job was when it began.

    `again`: the job is known to be stuck, and this is its second inspection.
    """

    inquiry: Inquiry
    suspicion: Suspicion
    earlier: Moment
    again: bool = False

    def give_up(self) -> None:
        self.inquiry.cancel()
        self.inquiry.discard()


class Watchdog:
    """Call `tick` about twice a second and `close` at the end; nothing in it waits.

    Args:
        run_dir: bundles of stuck jobs go into its `hangs/0`, `hangs/1` and so on.
        lengths: what is usual, or the user's own limit.
        say: takes a line for the user.
        on_hang: hears of each hang once.
        command: what takes the closer look.

    With `look_again` a job that is still stuck a minute later is looked at once more for each hang,
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
        self.hangs: list[Hang] = []
        self.look_again = False
        self._looked_again = False
        self._folder, self._lengths = run_dir / FOLDER, lengths
        self._say, self._on_hang, self._command = say, on_hang, command
        self._observer, self._presence = Observer(lengths), Presence()
        self._look: _Look | None = None
        self._stuck: StuckRanks | None = None
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
            self.rest()  # a look that is under way has met a job that was stopped with us
        now = self._observer.observe(headers, groups, deaths, now_ns, away_ns)
        pids = [group.main for group in groups]
        if self._stuck is not None:
            self._follow_stuck(self._stuck, now, deaths)
        if self._look is not None:
            if (answer := self._look.inquiry.poll()) is not None:
                self._take(self._look, answer, now)
        elif pids and self._stuck is None:
            suspicion = suspect(now.standings, now.activities, self._lengths, now_ns)
            if suspicion is not None and self._retries.due(_marks(suspicion, now), now_ns):
                self._ask(suspicion, now, pids)
        elif pids and self._wants_second_look(now_ns):
            self._looked_again = True
            self._ask(self.hangs[-1].suspicion, now, pids, "-again")

    def rest(self) -> None:
        """The job is ending: what its ranks do on their way out is not a hang."""
        self._presence.pause()
        if self._look is not None:
            look, self._look = self._look, None
            self._looked_again &= not look.again
            look.give_up()

    def close(self, *, wait_s: float) -> None:
        """Give a running inspection `wait_s` seconds to answer, then end it."""
        if self._look is not None and not self._look.again and wait_s:
            answer = self._look.inquiry.wait(wait_s)
            if answer is not None and answer.hangs:
                look, self._look = self._look, None
                self._tell(look, answer, time.monotonic_ns())
        self.rest()
        self._observer.close()

    def _follow_stuck(self, stuck: StuckRanks, now: Moment, deaths: Sequence[Death]) -> None:
        """Once a job is found stuck it is left alone until it moves, or its ranks have ended."""
        fate = stuck.fate(now, deaths)
        if fate == "still":
            return
        self._stuck = None
        self._observer.have_moved(stuck.pids, stuck.moved_ns or now.at_ns)
        if fate == "moved":
            self._say("the job moves again")

    def _wants_second_look(self, now_ns: int) -> bool:
        due = now_ns - self.hangs[-1].at_ns > AGAIN_NS
        return self.look_again and not self._looked_again and due

    def _tell(self, look: _Look, answer: Answer, now_ns: int) -> None:
        self.hangs.append(Hang(look.suspicion, answer, self._first_asked[1], now_ns))
        self._on_hang(self.hangs[-1])

    def _ask(self, suspicion: Suspicion, now: Moment, pids: Sequence[int], again: str = "") -> None:
        folder = self._folder / f"{len(self.hangs) - bool(again)}{again}"
        allowed_s = AT_MOST_S * 2**self._retries.failures
        try:
            inquiry = Inquiry(pids, folder, command=self._command, at_most_s=allowed_s)
        except OSError as problem:
            self._bear(f"can't inspect the job: {problem}", now.at_ns)
        else:
            self._look = _Look(inquiry, suspicion, now, bool(again))
            marks = _marks(suspicion, now)
            if not marks & self._first_asked[0]:
                self._first_asked = (marks, now.at_ns)

    def _take(self, look: _Look, answer: Answer, now: Moment) -> None:
        self._look = None
        if look.again:
            if self._stuck is not None:
                self._say(f"a minute later: {answer.summary}")
            else:  # it moved meanwhile, which has been said
                look.inquiry.discard()
            return
        guilty = {s.pid for s in now.standings if s.rank in answer.culprits}
        stuck = StuckRanks(guilty.union(look.suspicion.pids), look.earlier, now)
        if answer.hangs and stuck.pids:
            self._stuck, self._looked_again = stuck, False
            self._retries.settle()
            self._observer.distrust()
            self._tell(look, answer, now.at_ns)
        else:
            look.inquiry.discard()
            self._go_on(answer, look, now)

    def _go_on(self, answer: Answer, look: _Look, now: Moment) -> None:
        """The job is not known to be stuck."""
        if answer.hangs:  # it has moved on in the meantime
            self._retries.settle()
        elif answer.state == "gone":  # it ends
            self._retries.put_off(_marks(look.suspicion, look.earlier), now.at_ns)
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
            self._retries.put_off(_marks(suspicion, look.earlier), now.at_ns)
        elif not (
            answer.state == "healthy"
            and suspicion.place == SILENT
            and self._observer.learn_work(suspicion.pids, look.earlier, now)
        ):
            for standing in look.earlier.standings:  # and of those who wait for the suspected
                if standing.pid in suspicion.pids or standing.waits:
                    self._lengths.tolerate(standing.place, standing.age_s(look.earlier.at_ns))

    def _bear(self, problem: str, now_ns: int) -> None:
        self._retries.fail(now_ns)
        if self._retries.failures <= FAILURES_SAID:
            last = "; retrying silently" * (self._retries.failures == FAILURES_SAID)
            self._say(f"{problem}{last}")


def _marks(suspicion: Suspicion, moment: Moment) -> Marks:
    """Return what distinguishes one suspicion from a later one of the same ranks.

    Of a rank that never sleeps it is only where it stands: to be looked at makes it sleep.
    """
    return frozenset(
        (s.pid, s.place, (0, 0) if s.place == SPINNING else s.mark)
        for s in moment.standings
        if s.pid in suspicion.pids
    )
