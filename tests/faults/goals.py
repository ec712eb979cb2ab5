"""What the bench must reach; `python -m tests.faults --check` fails without it."""

from __future__ import annotations

from tests.faults.results import Results
from tests.faults.score import median, share

DETECTED_PCT = 95.0
CULPRIT_PCT = 95.0
CLASS_PCT = 90.0
FAULTS = 36
SECONDS = {8: 5.0, 64: 15.0}  # median of the cases with up to so many ranks, on 2 quiet cores


def missed(results: Results) -> list[str]:
    """The goals that were not reached, in words."""
    outcomes = [outcome for outcome in results.outcomes if not outcome.skipped]
    misses = []
    for title, goal, value in (
        ("detected", DETECTED_PCT, share(outcomes, lambda o: o.detected)),
        ("culprit right", CULPRIT_PCT, share(outcomes, lambda o: o.culprit_right)),
        ("class right", CLASS_PCT, share(outcomes, lambda o: o.class_right)),
    ):
        if outcomes and value < goal:
            misses.append(f"{title} in {value:.1f} % of the cases; the goal is {goal:.0f} %")
    misses += [f"'{o.name}' was not injected: {o.skipped}" for o in results.outcomes if o.failed]
    misses += [
        f"'{calm.name}' did not start: {calm.failed}" for calm in results.calm if calm.failed
    ]
    for calm in results.calm:
        if calm.wrong():
            states = ", ".join(sorted({answer.state or "nothing" for answer in calm.wrong()}))
            misses.append(f"{len(calm.wrong())} attaches to '{calm.name}' said: {states}")
    return misses


def too_few(results: Results) -> list[str]:
    """That a slow machine got through less of the bench than says anything."""
    count = sum(not outcome.skipped for outcome in results.outcomes)
    return [f"{count} faults ran; the goal is {FAULTS}"] if count < FAULTS else []


def slow(results: Results) -> list[str]:
    """Sizes whose median time is over its goal: reported, as seconds depend on the machine."""
    misses = []
    smallest = 0
    for size, goal in SECONDS.items():
        times = [
            outcome.answer.seconds
            for outcome in results.outcomes
            if outcome.answer and outcome.answer.state and smallest < outcome.world_size <= size
        ]
        if times and median(times) > goal:
            misses.append(f"up to {size} ranks: {median(times):.1f} s; the goal is {goal:.0f} s")
        smallest = size
    return misses
