"""What a visit says that it could not see."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.collection.examine import Visit
from grpo_doctor_probes.evidence import FlightDump, Job, Member, Position, Stack

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
