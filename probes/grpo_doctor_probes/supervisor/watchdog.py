"""Has a closer look taken at a job that does not move, from beside it.

It never judges: what is suspicious is looked at by `grpo-doctor attach` in a process of its own,
and that one's verdict counts. A suspicion that was wrong costs a look, and doubles the limit of
its phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor_probes.supervisor.inquiry import ATTACH, Answer, Inquiry
from grpo_doctor_probes.supervisor.lengths import Lengths
from grpo_doctor_probes.supervisor.observe import Observer
from grpo_doctor_probes.supervisor.standing import Standing
from grpo_doctor_probes.supervisor.suspicion import Suspicion, suspect

if TYPE_CHECKING:
    from grpo_doctor_probes.live import Header
    from grpo_doctor_probes.samplers.jobtree import RankGroup
    from grpo_doctor_probes.supervisor.deaths import Death

FOLDER = "hangs"
# When `look_again` wants a second look at a job that was found stuck.
AGAIN_NS = 60_000_000_000
# A look that could not tell is repeated after this, then after twice as long, and so on.
RETRY_S, MOST_RETRY_S = 30.0, 600.0
_FAILURES_BORNE = 3


@dataclass(frozen=True, slots=True)
class Hang:
    """A job found stuck: what was suspected, and what `attach` says. `at_ns`: CLOCK_MONOTONIC."""

    suspicion: Suspicion
    answer: Answer
    at_ns: int


class Watchdog:
    """Call `tick` about twice a second and `close` at the end; nothing in it waits.

    Args:
        run_dir: bundles of stuck jobs go into its `hangs/0`, `hangs/1` and so on.
        lengths: what is usual, or the user's own limit.
        say: takes a line for the user.
        on_hang: hears of each hang once.
        command: what takes the closer look.

    With `look_again` a job that is still stuck a minute later is looked at once more, into
    `hangs/0-again`.
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
        self._folder, self._lengths = run_dir / FOLDER, lengths
        self._say, self._on_hang, self._command = say, on_hang, command
        self._observer = Observer(lengths)
        self._standings: tuple[Standing, ...] = ()
        self._inquiry: Inquiry | None = None
        self._suspicion: Suspicion | None = None
        self._suspected: frozenset[tuple[int, int]] = frozenset()
        self._hung: frozenset[tuple[int, int]] = frozenset()
        self._not_before_ns = 0
        self._retry_s = RETRY_S
        self._failures = 0
        self._said: set[str] = set()

    def tick(
        self,
        headers: Sequence[Header],
        groups: Sequence[RankGroup],
        deaths: Sequence[Death],
        now_ns: int,
    ) -> None:
        """Takes in how the job is at `now_ns` (CLOCK_MONOTONIC), and acts on it.

        `headers`, `groups` and `deaths` are those of `Observer.observe`.
        """
        self._standings, activities = self._observer.observe(headers, groups, deaths, now_ns)
        if self._inquiry is not None:
            if (answer := self._inquiry.poll()) is not None:
                self._take(answer, now_ns)
        elif self._hung:
            self._stay(now_ns, [group.main for group in groups])
        elif groups and now_ns >= self._not_before_ns and self._failures < _FAILURES_BORNE:
            found = suspect(self._standings, activities, self._lengths, now_ns)
            if found is not None:
                self._ask(found, [group.main for group in groups], now_ns)

    def _stay(self, now_ns: int, pids: Sequence[int]) -> None:
        """Once a job is found stuck it is left alone until it moves."""
        hang = self.hangs[-1]
        if not self._hung & self._marks():
            self._hung = frozenset()
            self._say("the job moves again")
        elif self.look_again and pids and now_ns - hang.at_ns > AGAIN_NS:
            self.look_again = False
            folder = hang.answer.folder
            self._ask(hang.suspicion, pids, now_ns, folder.with_name(f"{folder.name}-again"))

    def close(self, *, wait_s: float) -> None:
        """Gives a look that is under way `wait_s` seconds to answer, then ends it."""
        if self._inquiry is not None and self._suspicion is not None:
            answer = self._inquiry.wait(wait_s)
            if answer is not None and answer.hangs:
                self.hangs.append(Hang(self._suspicion, answer, time.monotonic_ns()))
                self._on_hang(self.hangs[-1])
            else:
                self._inquiry.cancel()
                self._inquiry.discard()
        self._observer.close()

    def _marks(self) -> frozenset[tuple[int, int]]:
        """What changes as soon as a rank moves on."""
        return frozenset((s.pid, s.since_ns) for s in self._standings)

    def _ask(
        self, suspicion: Suspicion, pids: Sequence[int], now_ns: int, folder: Path | None = None
    ) -> None:
        folder = folder or self._folder / str(len(self.hangs))
        try:
            self._inquiry = Inquiry(pids, folder, command=self._command)
        except OSError as problem:
            self._bear(f"can't look at the job: {problem}", now_ns)
        else:
            self._suspicion = suspicion
            self._suspected = frozenset(m for m in self._marks() if m[0] in suspicion.pids)

    def _take(self, answer: Answer, now_ns: int) -> None:
        inquiry, self._inquiry = self._inquiry, None
        suspicion, self._suspicion = self._suspicion, None
        assert inquiry is not None
        assert suspicion is not None
        still = self._suspected & self._marks()
        if self._hung:
            self._say(f"a minute later: {answer.summary}")
        elif answer.hangs and still:
            self._hung = still
            self._retry_s, self._failures = RETRY_S, 0
            self._observer.distrust()
            self.hangs.append(Hang(suspicion, answer, now_ns))
            self._on_hang(self.hangs[-1])
        else:
            inquiry.discard()
            self._go_on(answer, suspicion, now_ns)

    def _go_on(self, answer: Answer, suspicion: Suspicion, now_ns: int) -> None:
        """The job is not known to be stuck."""
        if answer.hangs or answer.state == "gone":  # it has moved on, or ended, in the meantime
            self._pause(now_ns)
        elif answer.state == "refused":
            self._failures = _FAILURES_BORNE
            self._say(f"can't tell whether the job is stuck, and won't try again: {answer.summary}")
        elif answer.state == "failed":
            self._bear(f"the look at the job failed: {answer.summary}", now_ns)
        else:
            self._calm(answer, suspicion, now_ns)

    def _calm(self, answer: Answer, suspicion: Suspicion, now_ns: int) -> None:
        """It is well, or slow, or nobody can tell yet: next time later."""
        if answer.state == "unknown":
            what = f"no reason found yet: {answer.summary}"
        else:
            what = f"{answer.state}, not stuck: {answer.summary}"
        if answer.state != "healthy" and suspicion.place not in self._said:
            self._said.add(suspicion.place)
            self._say(f"{suspicion.in_words()}; {what}")
        if suspicion.why == "long" and answer.state != "unknown":
            for standing in self._standings:  # and of those who wait for the suspected
                if standing.pid in suspicion.pids or standing.waits:
                    self._lengths.tolerate(standing.place, standing.age_s(now_ns))
        else:
            self._pause(now_ns)

    def _bear(self, problem: str, now_ns: int) -> None:
        self._failures += 1
        last = "; it will not be tried again" if self._failures >= _FAILURES_BORNE else ""
        self._say(f"{problem}{last}")
        self._pause(now_ns)

    def _pause(self, now_ns: int) -> None:
        self._not_before_ns = now_ns + int(self._retry_s * 1e9)
        self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)
