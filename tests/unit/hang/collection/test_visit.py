"""What a visit says that it could not see."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.collection.examine import Visit
from grpo_doctor_probes.evidence import FlightDump, Job, Member, Position, Stack
from tests.unit.hang.collection.played import Clock

NO_PYTHON = "py-spy: Failed to find python version from target process"
JOB = Job(
    "node-1",
    (
        Member(100, 1, 5, "rank", "python", "python train.py", rank=0),
        Member(200, 100, 6, "helper", "sleep", "sleep 3600", rank=0),
    ),
)


@pytest.mark.parametrize(
    ("problem", "pids", "said"),
    [
        (NO_PYTHON, (200,), []),  # a helper without Python is no gap in what was seen
        (NO_PYTHON, (100,), [NO_PYTHON]),
        ("py-spy: Permission denied", (100, 200), ["py-spy: Permission denied"]),
    ],
)
def test_what_stacks_lack_is_said_once(
    problem: str, pids: tuple[int, ...], said: list[str]
) -> None:
    visit = Visit(JOB)
    visit.add(stacks=[tuple(Stack(pid, 0, problem=problem) for pid in pids)])
    assert [problem.what for problem in visit.evidence().problems] == said


def test_whom_a_gap_is_of_is_known_where_it_is_one_process() -> None:
    visit = Visit(JOB)
    stacks = (Stack(100, 0, problem="it has ended"), Stack(200, 0, problem="refused"))
    visit.add(stacks=[stacks], dumps=[FlightDump("memory", 1, 101, problem="refused")])
    texts = [(problem.what, problem.pid) for problem in visit.evidence().problems]
    assert texts == [("it has ended", 100), ("refused", None)]


def test_a_visit_says_what_it_and_each_of_its_parts_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("grpo_doctor.hang.collection.examine.time", clock)
    visit = Visit(JOB, clock.monotonic_ns())
    for part, seconds in (("looks", 0.5), ("stacks", 2.0), ("looks", 0.25)):
        with visit.part(part):
            clock.sleep(seconds)
    clock.sleep(1.0)
    cost = visit.evidence().cost
    assert (cost.seconds, cost.parts) == (3.75, {"looks": 0.75, "stacks": 2.0})


def test_a_part_that_is_interrupted_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("grpo_doctor.hang.collection.examine.time", clock)
    visit = Visit(JOB, clock.monotonic_ns())

    def interrupted() -> None:
        clock.sleep(0.5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), visit.part("looks"):
        interrupted()
    assert visit.evidence().cost.parts == {"looks": 0.5}


@pytest.mark.parametrize(
    ("stack_ms", "position_ms", "longest_ms"), [(0.0, 0.0, 0.0), (9.0, 2.0, 9.0), (1.0, 8.0, 8.0)]
)
def test_the_longest_pause_of_the_job_is_that_of_any_question(
    stack_ms: float, position_ms: float, longest_ms: float
) -> None:
    visit = Visit(JOB)
    visit.add(
        stacks=[(Stack(100, 0), Stack(100, 0, pause_ms=stack_ms))],
        positions=[Position(100, 100, 0, pause_ms=position_ms)],
    )
    assert visit.evidence().cost.max_pause_ms == longest_ms
