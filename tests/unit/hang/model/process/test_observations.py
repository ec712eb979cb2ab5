"""What a visit itself does to a process is no motion of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.process.observations import index
from grpo_doctor.hang.model.process.progress import Motion
from grpo_doctor_probes.evidence import Evidence, FlightDump, Look
from tests.evidence import SECOND, EvidenceBuilder


def third_look(
    build: EvidenceBuilder, *, wakes: int, dump: FlightDump | None, threads: int = 1
) -> Evidence:
    """Rank 0, and a look 1.3 s after its recorder was asked: so many threads woke so often since,
    and slept before.
    """
    evidence = build.build()
    evidence = replace(evidence, looks=tuple(_with_threads(one, threads) for one in evidence.looks))
    last = evidence.looks[-1]
    at_ns = last.at_ns + int(1.5 * SECOND)
    woken = last.processes[0].threads
    if wakes:
        ran_ns = last.at_ns + int(0.2 * SECOND)
        woken = tuple(
            replace(one, voluntary=one.voluntary + wakes, last_ran_ns=ran_ns) for one in woken
        )
    look = replace(last.processes[0], at_ns=at_ns, threads=woken)
    return replace(
        evidence,
        looks=(*evidence.looks, Look(at_ns, (look,))),
        stacks=(*evidence.stacks, evidence.stacks[-1]),
        dumps=(dump,) if dump is not None else (),
    )


def _with_threads(look: Look, count: int) -> Look:
    process = look.processes[0]
    main = process.threads[0]
    more = tuple(replace(main, tid=main.tid + number) for number in range(1, count))
    return replace(look, processes=(replace(process, threads=(main, *more)),))


def motion(evidence: Evidence) -> Motion:
    return index(evidence)[100].motion


ASKED = FlightDump("ptrace", 0, 100, "fr", data=b"{}")


@pytest.mark.parametrize("wakes", [0, 1, 3, 6])
def test_a_thread_that_was_borrowed_for_a_call_slept_all_the_time(wakes: int) -> None:
    found = motion(third_look(EvidenceBuilder(ranks=1), wakes=wakes, dump=ASKED))
    assert (found.kind, found.wakes) == ("still", 0)
    # Whether it slept on after the call nobody knows; until the look before it did.
    assert found.still_s == pytest.approx(10.0 if wakes else 11.5)


@pytest.mark.parametrize(
    "dump", [None, replace(ASKED, source="file:/d/0"), replace(ASKED, data=b"", problem="spared")]
)
def test_who_wakes_without_a_call_polls(dump: FlightDump | None) -> None:
    found = motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=dump))
    assert found.kind == "polling"
    assert found.still_s == pytest.approx(1.3)


def test_a_call_that_failed_woke_its_thread_as_well() -> None:
    failed = replace(ASKED, data=b"", problem="the recorder was locked", pause_ms=6.0)
    assert motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=failed)).kind == "still"


def test_more_than_calls_explain_is_motion() -> None:
    assert motion(third_look(EvidenceBuilder(ranks=1), wakes=40, dump=ASKED)).kind == "polling"


def test_who_woke_before_the_call_as_well_polls() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).wakes = 5
    assert motion(third_look(build, wakes=5, dump=ASKED)).kind == "polling"


def test_what_wakes_two_threads_came_from_the_others() -> None:
    found = motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=ASKED, threads=2))
    assert found.kind == "polling"
    assert found.still_s == pytest.approx(1.3)
