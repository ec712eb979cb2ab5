"""What is read off one process: its name, its main thread, its phase and its quota."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor_probes.evidence import Limits, OpenSpanSeen
from tests.evidence import with_look
from tests.unit.hang.model.process.procs import PID, of, proc, span, subject
from tests.verdicts import REWARD


@pytest.mark.parametrize(
    ("spans", "phase"),
    [
        ((), "reward"),
        ((span("rollout", 5.0),), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0)), "sync"),  # the innermost
        ((span("sync", 2.0), span("rollout", 5.0)), "sync"),
        ((span("rollout", 5.0), span("my own", 2.0)), "rollout"),
        ((span("rollout", 5.0), span("sync", 2.0, collective=True)), "rollout"),
        ((span("sync", 2.0, collective=True),), "reward"),
        ((span("my own", 2.0),), "reward"),
    ],
)
def test_the_phase_is_that_of_its_innermost_span_or_of_its_stack(
    spans: tuple[OpenSpanSeen, ...], phase: str
) -> None:
    assert proc(subject(REWARD)[0], spans=spans).phase == phase


@pytest.mark.parametrize(
    ("throttled_ns", "share"), [((500, 500), 0.0), ((10**9, 16 * 10**8), 0.5), ((10**9,), 0.0)]
)
def test_how_long_its_quota_held_it_back(throttled_ns: tuple[int, ...], share: float) -> None:
    build, _ = subject()
    limits = tuple((Limits(PID, throttled_ns=each),) for each in throttled_ns)
    assert proc(build, limits=limits).throttled_share == pytest.approx(share)


def test_over_no_time_no_quota_holds_back() -> None:
    evidence = with_look(subject()[0].build(), 0, PID)
    limits = ((Limits(PID),), (Limits(PID, throttled_ns=10**9),))
    assert of(replace(evidence, limits=limits)).throttled_share == 0.0
