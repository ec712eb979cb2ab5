"""A job of two ranks in code, its watchdog, and a look at it that answers what it is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_doctor_probes.procs.live import Header, OpenSpan
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.samplers.jobtree import RankGroup
from grpo_doctor_probes.supervisor.deaths import Death, Subject
from grpo_doctor_probes.supervisor.standing import Lengths
from grpo_doctor_probes.supervisor.watchdog import Hang, Watchdog

S = 1_000_000_000


def span(name: str, start_s: float, kind: int = layout.SPAN, thread: int = 0) -> OpenSpan:
    return OpenSpan(name, round(start_s * S), thread, kind=kind)


def header(
    *spans: OpenSpan,
    rank: int = 0,
    pid: int = 100,
    names: tuple[str, ...] = (),
    closed_ns: int = 0,
    begun_s: float = 0,
) -> Header:
    """`begun_s`: when a span began that has ended."""
    return Header(
        pid=pid,
        rank=rank,
        start_monotonic_ns=0,
        start_unix_ns=0,
        dropped=0,
        segments=1,
        name_overflow=0,
        closed_ns=closed_ns,
        errors=0,
        step=None,
        names=names or tuple(s.name for s in spans),
        threads=("MainThread",),
        open_spans=spans,
        begun_ns=(max([round(begun_s * S), *(s.start_ns for s in spans if s.thread == 0)]),),
    )


# Two pids that no process has, so that /proc says nothing of them: pid_max is at most 2**22.
PIDS = (2**22 + 1, 2**22 + 2)
GROUPS = [RankGroup(rank, pid, (pid,)) for rank, pid in enumerate(PIDS)]
STUB = """
import json, sys
state, cause, summary, code, culprits = json.loads(sys.argv[1])
open(sys.argv[-2] + "/evidence", "w").close()
print(summary, file=sys.stderr)
if state:
    verdict = {"state": state, "class": cause, "summary": summary, "culprits": culprits}
    print(json.dumps({"verdict": verdict}))
sys.exit(code)
"""


def commanded(state: str, cause: str, code: int, culprits: Sequence[int] = ()) -> tuple[str, ...]:
    """A look that answers so."""
    answer = json.dumps([state, cause, "Rank 1 sleeps.", code, culprits])
    return (sys.executable, "-c", STUB, answer)


class Watched:
    """A job of two ranks, time as the test says, and a look that answers what it is told."""

    def __init__(
        self, folder: Path, state: str, *, cause: str = "", code: int = 0, begun: bool = True
    ) -> None:
        self.folder, self.lengths = folder, Lengths(timeout_s=1e6)
        self.messages: list[str] = []
        self.hangs: list[Hang] = []
        self.now_s = 1000.0
        self.begun = {0: 999.0, 1: 999.0}
        self.inside: dict[int, list[OpenSpan]] = {}
        self.groups = list(GROUPS)
        self.deaths: list[Death] = []
        self.watchdog = Watchdog(
            folder,
            self.lengths,
            say=self.messages.append,
            on_hang=self.hangs.append,
            command=commanded(state, cause, code),
        )
        if begun:
            self.get_going()

    @property
    def headers(self) -> list[Header]:
        return [
            header(
                span("step", 1, layout.STEP),
                span("reward", self.begun[group.rank]),
                *self.inside.get(group.rank, ()),
                rank=group.rank,
                pid=group.main,
            )
            for group in self.groups
        ]

    def tick(self, seconds: float = 0.5) -> None:
        self.now_s += seconds
        self.watchdog.tick(self.headers, self.groups, self.deaths, round(self.now_s * S))

    def begin_anew(self, rank: int) -> None:
        self.begun[rank] = self.now_s

    def get_going(self) -> None:
        """Both ranks finish a `reward` and begin the next."""
        for _ in range(3):
            self.tick()
            self.begin_anew(0)
            self.begin_anew(1)
        self.tick()

    def stand(self, seconds: float) -> None:
        """Nothing moves for so long, and it is looked at all the time."""
        for _ in range(round(2 * seconds)):
            self.tick()

    @property
    def look(self) -> Any:
        assert self.watchdog._look is not None
        return self.watchdog._look

    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return self.watchdog._look is not None

    def end(self, rank: int, status: int) -> None:
        """Its process ends, by a signal or with an exit code."""
        (pid,) = [group.main for group in self.groups if group.rank == rank]
        self.groups = [group for group in self.groups if group.rank != rank]
        self.deaths.append(Death(Subject(pid, f"rank {rank}", rank), round(self.now_s * S), status))

    def get_stuck(self) -> None:
        self.until_asked(60)
        self.answer()
        assert self.hangs

    def answer(self) -> None:
        """Waits for the look and lets the watchdog have its answer."""
        assert self.look.inquiry.wait(60) is not None
        self.tick(0)

    def look_finds(self, state: str) -> None:
        """The inspection that begins at the next tick answers so."""
        self.watchdog._command = commanded(state, "", 0)
        self.tick()
        assert self.is_looking()
        self.answer()

    def until_asked(self, within_s: float, *, moves: bool = True) -> float:
        """Ticks on, rank 0 moving or none, until a look begins; the age of rank 1's phase then."""
        end_s = self.now_s + within_s
        while not self.is_looking():
            assert self.now_s < end_s, "it was never looked at"
            if moves:
                self.begin_anew(0)
            self.tick()
        return self.now_s - self.begun[1]
