from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, SETTINGS, run
from tests.unit.findings.recorded import count, inside
from tests.unit.findings.rules.saying import even, rows


def encoding(seconds: float) -> TraceBuilder:
    build = run()
    inside(build, "rollout/encode", seconds)
    return inside(build, "logprob/prepare_inputs", seconds / 2)


def texts(workers: int) -> TraceBuilder:
    facts: dict[str, Any] = {"framework": "bundled", "framework_version": "0.1.0"}
    knobs = {**SETTINGS, "dataload.num_workers": workers}
    build = run({**HEALTHY, "dataload": 2.0}, knobs=knobs, **facts)
    for name, value in (("tokenize_s", 1.8), ("join_s", 0.1), ("read_s", 0.0)):
        count(build, f"dataload/{name}", value)
    return build


def mixed(spans_s: float, texts_s: float, images_s: float, *, waits_s: float = 2.0) -> TraceBuilder:
    """Steps of ten seconds without loader processes: spans, and what loading is made of."""
    knobs = {**SETTINGS, "dataload.num_workers": 0}
    build = even({"dataload": waits_s, "rollout": 3.0}, knobs=knobs)
    for step in range(4):
        at = 10.0 * step + waits_s
        build.span(0, "rollout/encode", at, at + spans_s, depth=2)
    for name, value in (("tokenize_s", texts_s), ("read_s", images_s)):
        count(build, f"dataload/{name}", value)
    return build


RUNS = {
    "sick": lambda: encoding(1.0),
    "well": lambda: encoding(0.02),
    "without spans it says which are missing": run,
    "a loader without processes tokenizes in the step 1": lambda: texts(0),
    "a loader without processes tokenizes in the step 2": lambda: texts(2),
    "texts beside images that take longer are a part of loading": lambda: count(texts(0),
        "dataload/process_s", 4.0),
    **rows("what is a part of slow loading is not told twice", mixed, (0.49, 1.0, 4.0),
        (0.5, 1.0, 4.0), (0.1, 2.0, 2.0), (0.1, 2.0, 2.01)),
    **rows("loading that nobody else tells of gets processes",
        lambda texts_s: mixed(0.0, texts_s, 4.0, waits_s=0.4), 2.0, 8.0),
}  # fmt: skip
