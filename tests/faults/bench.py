"""All cases, and the healthy jobs between them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace

from tests.faults.cases import NO_TIME_LEFT, Options, run_case
from tests.faults.controls import CONTROLS, Control
from tests.faults.events import Silence
from tests.faults.healthy import Calm, watch
from tests.faults.jobs import ForkServer
from tests.faults.kept import Shelf
from tests.faults.registry import Fault, load
from tests.faults.sampling import spread
from tests.faults.score import Outcome

TOGETHER = 2
ALONE_TAKES = 2.0  # times as long as a case that runs beside others
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
    together, alone, turn = in_turn(faults, options.until, lambda fault: fault.alone)
    order = {fault.name: index for index, fault in enumerate(faults)}
    outcomes = []
    one_attach = threading.Lock()
    with fork_server() as server:
        for count, group, until in ((TOGETHER, together, turn), (1, alone, options.until)):
            within = replace(options, until=until)
            with ThreadPoolExecutor(count) as pool:
                cases = [
                    pool.submit(run_case, server, fault, seed, within, one_attach)
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
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def in_turn(
    faults: Sequence[Fault], until: float, alone: Callable[[Fault], bool]
) -> tuple[list[Fault], list[Fault], float]:
    """Those that may run together, those that run alone, and until when the first may begin.

    Where the time is limited, what comes first is spread over classes and families.
    """
    turn = until
    if until < math.inf:
        faults = spread(faults)
        share = sum(map(alone, faults)) / max(1, len(faults))
        turn -= min(1.0, ALONE_TAKES * share) * (until - time.monotonic())
    return [f for f in faults if not alone(f)], [f for f in faults if alone(f)], turn


def planned(attaches: int, only: Sequence[str]) -> list[tuple[Control, int]]:
    """So many attaches, spread over healthy jobs."""
    load()  # some families have controls of their own
    controls = [
        control
        for control in CONTROLS.values()
        if not only or any(word in control.name for word in only)
    ]
    size = len(controls)
    times = [attaches * (index + 1) // size - attaches * index // size for index in range(size)]
    return [(control, count) for control, count in zip(controls, times) if count]


def run_controls(
    attaches: int,
    only: Sequence[str],
    say: Say,
    until: float = math.inf,
    shelf: Shelf | None = None,
) -> list[Calm]:
    """Attaches so many times, spread over the healthy jobs; no further one starts after `until`."""
    results = []
    with fork_server() as server:
        for control, times in planned(attaches, only):
            results.append(watched(server, control, times, until, shelf))
            say(calm_line(results[-1]))
    return [calm for calm in results if calm.failed != NO_TIME_LEFT]


def watched(
    server: ForkServer, control: Control, times: int, until: float, shelf: Shelf | None = None
) -> Calm:
    """What was said about one healthy job, or why it was not asked."""
    if time.monotonic() > until:
        return Calm(control.name, control.world_size, (), NO_TIME_LEFT)
    try:
        return watch(server, control, times, shelf)
    except Silence as defect:
        first = Calm(control.name, control.world_size, (), str(defect))
    if time.monotonic() > until:
        return first
    try:
        return watch(server, control, times, shelf)
    except Silence:
        return first


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
    text = (
        f"{answer.state} {answer.cause} {list(answer.culprits)} {answer.confidence:.2f} "
        f"{answer.seconds:.1f} s, pause {answer.pause_ms:.0f} ms | {answer.summary}{answer.error}"
    )
    other_tools = "".join(
        f"\n        {name}: {other.said} {list(other.blamed)}"
        for name, other in (
            ("top frame", outcome.top_frame),
            ("torchfrtrace", outcome.torchfrtrace),
        )
        if other is not None
    )
    retry = f"\n        injected again: {outcome.retried}" if outcome.retried else ""
    label = f"{outcome.name} (rank {outcome.culprit}, {outcome.phase})"
    return f"{marks}   {label}: {text}{retry}{other_tools}"


def calm_line(calm: Calm) -> str:
    """One healthy job in one line, and what was wrong with it."""
    states = ", ".join(f"{count} {state}" for state, count in calm.states().items())
    alarms = "".join(f"\n        {a.state}: {a.cause} {a.summary}{a.error}" for a in calm.wrong())
    return f"calm  {calm.name}: {states}{calm.failed}{alarms}"
