"""Attaching again and again to a job that nothing is wrong with."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from tests.faults import attach
from tests.faults.controls import QUICK_STEPS, Control
from tests.faults.events import count, wait_for
from tests.faults.jobs import START_S, ForkServer, started
from tests.faults.kept import Shelf, Truth
from tests.faults.rank import Spec, pace_of
from tests.faults.score import Answer

CALM = ("healthy", "slow")
FAMILY = "calm"
ALARMS = ("stuck", "dead")


@dataclass(frozen=True)
class Calm:
    """What was said about a healthy job, each time. `failed`: why it did not come up."""

    name: str
    world_size: int
    answers: tuple[Answer, ...]
    failed: str = ""

    def states(self) -> Counter[str]:
        return Counter(answer.state or "no answer" for answer in self.answers)

    def alarms(self) -> list[Answer]:
        """Verdicts that would have made somebody end this job."""
        return [answer for answer in self.answers if answer.state in ALARMS]

    def wrong(self) -> list[Answer]:
        """Alarms, and attaches without an answer."""
        return [answer for answer in self.answers if answer.state not in CALM]


def watch(server: ForkServer, control: Control, times: int, shelf: Shelf | None = None) -> Calm:
    """Attaches so many times, each time to another rank; on a shelf the evidence is kept.

    Raises:
        Silence: the job did not come up.
    """
    size = control.world_size
    spec = Spec("", size, 0, control=control.name, step=QUICK_STEPS, pace_s=pace_of(size))
    with started(server, spec, control.launch) as job:
        if control.first_step:
            wait_for(job.folder, lambda events: count(events, "started") >= size, "start", START_S)
        else:
            job.await_healthy()
        time.sleep(control.settle_s)
        answers = tuple(
            attach.attach(str(job.pids[turn % len(job.pids)]), *_kept(shelf, control, turn))
            for turn in range(times)
        )
    return Calm(control.name, control.world_size, answers)


def _kept(shelf: Shelf | None, control: Control, turn: int) -> list[str]:
    if shelf is None:
        return []
    return ["--out", str(shelf.place(control.name, turn, Truth(CALM, family=FAMILY)))]
