"""All cases, and the healthy jobs between them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

from tests.faults.cases import NO_TIME_LEFT, Options, run_case
from tests.faults.controls import CONTROLS
from tests.faults.events import Silence
from tests.faults.healthy import Calm, watch
from tests.faults.jobs import ForkServer
from tests.faults.registry import Fault, load
from tests.faults.score import Outcome

TOGETHER = 2
Say = Callable[[str], None]


def _silent(_text: str) -> None:
    """Says nothing."""


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


def chosen(only: Sequence[str], classes: Sequence[str]) -> list[Fault]:
    """Faults by a part of their name or family, and by their classes; all without either."""
    return [
        fault
        for fault in load().values()
        if (not only or any(word in fault.name or word == fault.family for word in only))
        and (not classes or set(classes) & set(fault.truth.classes))
    ]


def run_faults(
    faults: Sequence[Fault], seeds: Sequence[int], options: Options, say: Say = _silent
) -> list[Outcome]:
    """Runs every fault with every seed.

    While one fault ages, another is injected; attaches go one at a time. What needs the machine for
    itself, because it is busy, large or found without a PID, runs alone, afterwards.
    """
    together = [fault for fault in faults if not fault.alone]
    alone = [fault for fault in faults if fault.alone]
    outcomes = []
    one_attach = threading.Lock()
    with fork_server() as server:
        for count, group in ((TOGETHER, together), (1, alone)):
            with ThreadPoolExecutor(count) as pool:
                cases = [
                    pool.submit(run_case, server, fault, seed, options, one_attach)
                    for fault in group
                    for seed in seeds
                ]
                try:
                    for case in as_completed(cases):
                        outcomes.append(case.result())
                        say(line(outcomes[-1]))
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)  # the pool waits for what runs
                    raise
    order = {fault.name: place for place, fault in enumerate(faults)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def run_controls(
    attaches: int, only: Sequence[str], say: Say, until: float = math.inf
) -> list[Calm]:
    """Attaches so many times, spread over the healthy jobs; no further one starts after `until`."""
    controls = [
        one for one in CONTROLS.values() if not only or any(word in one.name for word in only)
    ]
    if not attaches or not controls:
        return []
    found = []
    with fork_server() as server:
        for place, control in enumerate(controls):
            if time.monotonic() > until:
                say(f"skip  {control.name}: {NO_TIME_LEFT}")
                continue
            times = (attaches * (place + 1)) // len(controls) - attaches * place // len(controls)
            try:
                found.append(watch(server, control, times))
            except Silence as defect:
                found.append(Calm(control.name, control.world_size, (), str(defect)))
            say(calm_line(found[-1]))
    return found


def line(outcome: Outcome) -> str:
    """One case in one or two lines."""
    if outcome.skipped:
        return f"skip  {outcome.name}: {outcome.skipped}"
    answer = outcome.answer
    assert answer is not None
    marks = "".join(
        letter if right else "-"
        for letter, right in (
            ("D", outcome.detected), ("R", outcome.culprit_right), ("C", outcome.class_right),
        )
    )  # fmt: skip
    said = (
        f"{answer.state} {answer.cause} {list(answer.culprits)} {answer.confidence:.2f} "
        f"{answer.seconds:.1f} s, pause {answer.pause_ms:.0f} ms | {answer.summary}{answer.error}"
    )
    others = "".join(
        f"\n        {name}: {other.said} {list(other.blamed)}"
        for name, other in (
            ("top frame", outcome.top_frame),
            ("torchfrtrace", outcome.torchfrtrace),
        )
        if other is not None
    )
    return f"{marks}   {outcome.name} (rank {outcome.culprit}, {outcome.phase}): {said}{others}"


def calm_line(calm: Calm) -> str:
    """One healthy job in one line, and what was wrong with it."""
    states = ", ".join(f"{count} {state}" for state, count in calm.states().items())
    alarms = "".join(f"\n        {a.state}: {a.cause} {a.summary}{a.error}" for a in calm.wrong())
    return f"calm  {calm.name}: {states}{calm.failed}{alarms}"
