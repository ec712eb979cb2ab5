"""What a visit says that it could not see."""

from __future__ import annotations

from grpo_doctor.hang.collection.visit import Visit
from grpo_doctor_probes.evidence import FlightDump, Job, Member, Stack

NO_PYTHON = "py-spy: Failed to find python version from target process"
JOB = Job(
    "node-1",
    (
        Member(100, 1, 5, "rank", "python", "python train.py", rank=0),
        Member(200, 100, 6, "helper", "sleep", "sleep 3600", rank=0),
    ),
)


def problems(*stacks: Stack) -> list[str]:
    visit = Visit(JOB)
    visit.stacks.append(stacks)
    return [one.what for one in visit.evidence().problems]


def test_a_helper_without_python_is_no_gap_in_what_was_seen() -> None:
    assert problems(Stack(200, 0, problem=NO_PYTHON)) == []


def test_a_rank_without_a_stack_is_one() -> None:
    assert problems(Stack(100, 0, problem=NO_PYTHON)) == [NO_PYTHON]


def test_a_refusal_is_said_once_for_all_processes() -> None:
    refused = "py-spy: Permission denied"
    assert problems(Stack(100, 0, problem=refused), Stack(200, 0, problem=refused)) == [refused]


def test_whom_a_gap_is_of_is_known_where_it_is_one_process() -> None:
    visit = Visit(JOB)
    visit.stacks.append((Stack(100, 0, problem="it has ended"), Stack(200, 0, problem="refused")))
    visit.dumps.append(FlightDump("ptrace", 1, 101, problem="refused"))
    seen = [(one.what, one.pid) for one in visit.evidence().problems]
    assert seen == [("it has ended", 100), ("refused", None)]
