from __future__ import annotations

from typing import Any

from grpo_doctor.whatif.models.loading import waits_for_data
from tests.build import TraceBuilder
from tests.unit.findings.recorded import count, knob
from tests.unit.findings.rules.saying import rows

FACTS: dict[str, Any] = {"framework": "ms-swift", "framework_version": "4.5.0"}
KNOBS: dict[str, Any] = {"dataload.num_workers": 2, "dataload.persistent_workers": False}


def loads(waits: list[float], **more: Any) -> TraceBuilder:
    build = TraceBuilder(knobs={**KNOBS, **more}, **FACTS)
    now = 0.0
    for step, wait in enumerate(waits):
        build.step(0, step, now, {"dataload": wait, "rollout": 3.0, "train": 1.0})
        now += wait + 4.0
    return build


RESTARTS = ([0.05] * 5 + [3.0]) * 4


def a_longer_queue_is_replayed_from_the_recorded() -> TraceBuilder:
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 11.0] * 4
    waits = [3.0 if effort > 5 else 0.001 for effort in efforts]
    build = loads(waits, **knob("dataload.num_workers", 1), **knob("dataload.prefetch_factor", 2))
    count(build, "dataload/read_s", lambda _, step: efforts[step])
    return build


def timed(waits: list[float], efforts: list[float], **knobs: Any) -> TraceBuilder:
    """A run whose loaders said what each batch took."""
    build = loads(waits, **knobs)
    return count(build, "dataload/read_s", lambda _, step: efforts[step])


def the_smallest_queue_that_helps_is_larger_than() -> TraceBuilder:
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 27.0] * 3
    waits = [11.0 if effort > 5 else 0.001 for effort in efforts]
    knobs = {"dataload.num_workers": 1, "dataload.prefetch_factor": 4}
    return timed(waits, efforts, **knobs)


def batches_that_explain_the_waits_are_no_restarts() -> TraceBuilder:
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 11.0] * 4
    waits = [3.0 if effort > 5 else 0.001 for effort in efforts]
    build = timed(waits, efforts, **knob("dataload.num_workers", 1))
    build.framework = "unknown"  # so that nobody knows how many batches are ready
    return build


def a_longer_queue_is_that_of_all_the_processes() -> TraceBuilder:
    efforts = [2.0, 2.0, 2.0, 2.0, 20.0, 20.0] * 4
    waits = waits_for_data(efforts, [4.0] * len(efforts), workers=2, prefetch=2)
    knobs = {"dataload.num_workers": 2, "dataload.prefetch_factor": 2}
    return timed([max(wait, 0.001) for wait in waits.tolist()], efforts, **knobs)


RUNS = {
    "sick": lambda: loads(RESTARTS),
    "well": lambda: loads([0.05] * 24),
    "persistent processes are not restarted": lambda: loads(RESTARTS,
        **knob("dataload.persistent_workers", True)),
    "waits at the distance of the processes are no restarts": lambda: loads([0.05, 0.05, 1.0] * 8,
        **knob("dataload.num_workers", 3)),
    **rows("single few and even waits are no bursts", loads, ([0.05] * 11 + [3.0],), ([0.05] * 5,),
        ([1.0] * 20,)),
    "without loader processes the question does not arise": lambda: loads(RESTARTS,
        **knob("dataload.num_workers", 0)),
    "two bursts are enough": lambda: loads(([0.05] * 9 + [3.0]) * 2),
    "steps that fetch nothing say nothing of the usual wait 1": lambda:
        loads([0.5] * 7 + [0.0] * 9),
    "steps that fetch nothing say nothing of the usual wait 2": lambda:
        loads([0.125, 0.0] * 8 + [3.0, 0.0] * 2),
    "a burst is more than three usual waits and more than a 1": lambda:
        loads([0.125] * 16 + [0.375, 0.376, 3.0, 3.0, 3.0]),
    "a burst is more than three usual waits and more than a 2": lambda:
        loads([0.05] * 16 + [0.2, 0.25, 3.0, 3.0, 3.0]),
    **rows("a distance may differ by one step",
        lambda gap: loads([0.05] * 5 + [3.0] + [0.05] * 5 + [3.0] + [0.05] * gap + [3.0]), 5, 6, 7),
    **rows(
        "without the times of batches the queue grows by two sizes",
        lambda ahead: loads(
            RESTARTS,
            **knob("dataload.persistent_workers", True),
            **knob("dataload.prefetch_factor", ahead),
        ),
        2,
        4,
        8,
        16,
    ),
}  # fmt: skip
