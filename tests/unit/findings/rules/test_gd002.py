from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run, starved
from tests.unit.findings.recorded import count
from tests.unit.findings.rules.saying import even, named, rows
from tests.unit.findings.rules.test_gd030 import RESTARTS, loads

FOUR = {"dataload.num_workers": 4}


def loaded(wait_s: float, read_s: float) -> TraceBuilder:
    """A step of ten seconds that waits so long for a process that reads for so long."""
    build = even({"dataload": wait_s}, knobs={"dataload.num_workers": 1})
    return count(build, "dataload/read_s", read_s)


def a_host_that_is_busier_than_it_should_be_gets(cpu: float) -> TraceBuilder:
    build = even({"dataload": 3.0}, knobs={"dataload.num_workers": 0})
    build.series("host.cpu", "%", [0.0, 40.0], [cpu, cpu])
    return build


def timed(seconds: float) -> TraceBuilder:
    """Loaders that time themselves; the rest of the step is 9.85 s, of which they may take 80%."""
    build = starved(0)
    for name, value in (("read_s", seconds - 0.2), ("tokenize_s", 0.1), ("join_s", 0.1)):
        count(build, f"dataload/{name}", value)
    return build


def mostly_reading() -> TraceBuilder:
    return timed(9.0)


RUNS = {
    **rows("as many processes as have the time", timed, 3.0, 25.0),
    "a twentieth of the step is enough 1": lambda: even({"dataload": 0.49}),
    "a twentieth of the step is enough 2": lambda: even({"dataload": 0.5}),
    "handing over a batch is no loading 1": lambda: even({"dataload": 0.0079}, step_s=0.1,
        knobs=FOUR),
    "handing over a batch is no loading 2": lambda: even({"dataload": 0.008}, step_s=0.1,
        knobs=FOUR),
    "handing over a batch is no loading 3": lambda: even({"dataload": 0.0079}, step_s=0.1,
        knobs={"dataload.num_workers": 0}),
    **rows("a process that works half of its time was not waited for", loaded, (0.5, 4.75),
        (0.5, 4.76), (0.5, 5.0), (0.79, 1.0), (0.8, 1.0)),
    **named(a_host_that_is_busier_than_it_should_be_gets, 85.0, 85.1),
    **rows("more processes", starved, 0, 1, 4),
    "a loader that stays slow is predicted to": lambda: run({**HEALTHY, "dataload": 90.0},
        knobs={**SETTINGS, "dataload.num_workers": 0}),
    "many processes already": lambda: starved(16),
    "waits in bursts are another rule's": lambda: loads(RESTARTS),
    **rows("processes that have time are not what is waited for", lambda effort_s: count(
        run({**HEALTHY, "dataload": 0.6}, knobs={**SETTINGS, "dataload.num_workers": 1}),
        "dataload/read_s", effort_s), 1.0, 30.0),
    "waiting for another ranks loader is not ones own": lambda: run(slow={1: {"dataload": 0.5}}),
}  # fmt: skip
