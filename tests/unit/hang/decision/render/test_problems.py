"""What could not be seen is said of somebody."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.evidence import Evidence, FlightDump, HostFacts, Placement, Problem
from tests.evidence import EvidenceBuilder


def problems_of(*problems: Problem, hosts: int = 1) -> tuple[tuple[str, str], ...]:
    evidence: Evidence = EvidenceBuilder().build()
    places = tuple(Placement(f"node{number}") for number in range(hosts))
    job = replace(evidence.job, placements=places)
    unseen_parts = diagnose(replace(evidence, job=job, problems=problems)).problems
    return tuple((problem.what, problem.remedy) for problem in unseen_parts)


def test_ranks_that_say_the_same_are_named_together() -> None:
    problem = "it has not loaded torch"
    problems = problems_of(*(Problem(problem, "Wait.", pid=100 + rank) for rank in (2, 0, 1)))
    assert problems == (("ranks 0-2: it has not loaded torch", "Wait."),)


def test_a_process_that_is_no_rank_has_its_number_once() -> None:
    assert problems_of(Problem("it has ended", pid=77)) == (("pid 77: it has ended", ""),)
    assert problems_of(Problem("pid 77 is traced", pid=77)) == (("pid 77 is traced", ""),)


def test_numbers_of_other_hosts_mean_nothing_here() -> None:
    assert problems_of(Problem("it has ended", pid=77), hosts=2) == (("it has ended", ""),)


def test_what_discovery_assumed_and_what_the_kernel_hides_is_said() -> None:
    evidence = EvidenceBuilder().build()
    job = replace(evidence.job, notes=("process 79 is rank 0 (no other is free).",))
    host = HostFacts("node0", 2, kernel_problem="kernel messages are hidden")
    problems = diagnose(replace(evidence, job=job, host=host)).problems
    assert [problem.what for problem in problems] == [*job.notes, host.kernel_problem]


def test_a_recording_that_can_t_be_read_is_told_with_its_rank_or_file() -> None:
    evidence = EvidenceBuilder().build()
    bad = b"no dump"
    dumps = (
        FlightDump("ptrace", 2, 102, "fr", data=bad),
        FlightDump("ptrace", None, None, "fr", data=bad),
        FlightDump("file:/tmp/dump_7", 3, None, "", data=bad),
    )
    problems = diagnose(replace(evidence, dumps=dumps)).problems
    texts = [problem.what for problem in problems]
    subjects = {text.partition(":")[0] for text in texts}
    assert {"rank 2", "/tmp/dump_7"} <= subjects
    assert len(problems) == 3
    assert not [text for text in texts if text.startswith(("rank 3", "ranks"))]
