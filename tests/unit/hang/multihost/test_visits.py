"""Which of several looks are of one moment, of one host, of one job."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from grpo_doctor.hang.multihost import visits
from grpo_doctor_probes.evidence import Evidence, Member
from tests.evidence import EvidenceBuilder
from tests.several_hosts import on_hosts

SECOND_NS = 10**9


def hosts() -> list[Evidence]:
    return on_hosts(replace(EvidenceBuilder(ranks=4).build(), dumps=()), 2)


def aged(evidence: Evidence, by_s: float) -> Evidence:
    return replace(evidence, taken_unix_ns=evidence.taken_unix_ns - int(by_s * SECOND_NS))


@pytest.mark.parametrize(("age_s", "old"), [(0, False), (60, False), (60.001, True)])
def test_a_look_of_a_minute_ago_is_still_of_one_moment(age_s: float, old: bool) -> None:
    first, second = hosts()
    earlier = aged(first, age_s)
    assert visits.is_old(earlier.taken_unix_ns, second.taken_unix_ns) is old
    assert visits.apart_s(earlier, second) == visits.apart_s(second, earlier) == age_s
    usable, problems = visits.of_one_moment([earlier, second])
    assert usable == (earlier, second)
    assert len(problems) == int(old)


def test_hosts_of_one_name_are_told_apart_by_a_number() -> None:
    first, second = hosts()
    names = [
        replace(e, job=replace(e.job, host=name)) for e in (first, second) for name in ("a", "")
    ]
    assert visits.host_names(names) == ("a", "unnamed host", "a (2)", "unnamed host (2)")


def test_one_host_is_known_by_a_process_or_by_a_rank() -> None:
    first, second = hosts()
    there = replace(second.job, host=first.job.host)
    job = first.job
    assert visits.same_processes(job, job)
    assert not visits.same_processes(job, replace(job, host="elsewhere"))
    other_pids = tuple(replace(member, pid=member.pid + 500) for member in job.members)
    assert visits.same_processes(job, replace(job, members=other_pids))
    launcher = Member(3, 1, 8, "launcher", "torchrun", "torchrun train.py")
    strangers = tuple(replace(member, pid=member.pid + 500) for member in there.members)
    assert not visits.same_processes(job, replace(there, members=strangers))
    both = [replace(j, members=(*m, launcher)) for j, m in ((job, job.members), (there, strangers))]
    assert visits.same_processes(*both)


@pytest.mark.parametrize(
    ("called_s", "later_s", "cost_s", "moved"),
    [
        (15.0, 10.0, 2.0, True),
        (7.001, 10.0, 2.0, True),
        (7.0, 10.0, 2.0, False),  # within the look and five seconds
        (7.0, 10.0, 1.9, True),
        (3.0, 10.0, 2.0, False),
        (15.0, 5.001, 2.0, True),
        (15.0, 5.0, 2.0, False),  # the later look may be of the same moment
    ],
)
def test_a_call_after_the_look_and_its_slack_says_that_the_job_has_moved(
    called_s: float, later_s: float, cost_s: float, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the other host's recorder."""
    earlier, later = hosts()
    earlier = replace(earlier, cost=replace(earlier.cost, seconds=cost_s))
    later = replace(later, taken_unix_ns=earlier.taken_unix_ns + int(later_s * SECOND_NS))
    middle = replace(earlier, taken_unix_ns=earlier.taken_unix_ns - 20 * SECOND_NS)
    calls_ns = {id(later): earlier.taken_unix_ns + round(called_s * SECOND_NS)}
    monkeypatch.setattr(visits, "_last_call_ns", lambda visit: calls_ns.get(id(visit), 0))
    usable, _ = visits.of_one_moment([earlier, later])
    assert usable == ((later,) if moved else (earlier, later))
    assert visits.of_one_moment([middle, later])[0] == (later,)


@pytest.mark.parametrize(("apart_s", "rivals"), [(0, True), (60, True), (61, False), (3600, False)])
def test_of_two_processes_of_a_rank_the_newer_counts(apart_s: float, rivals: bool) -> None:
    first, second = hosts()
    members = tuple(
        replace(member, rank=(member.rank or 0) - 2) if member.rank is not None else member
        for member in second.job.members
    )
    twin = replace(
        second, job=replace(second.job, members=members), taken_unix_ns=first.taken_unix_ns
    )
    spans = [SimpleNamespace(rank=rank) for rank in (0, 7, -1)]
    old = replace(aged(first, apart_s), spans=tuple(spans))  # type: ignore[arg-type]
    evidences, problems = visits.one_of_each_rank([old, twin])
    loser = old if apart_s else twin
    settled = evidences[0 if apart_s else 1]
    assert visits.started_ranks(settled.job) == set()
    assert {member.pid for member in settled.job.members} == {m.pid for m in loser.job.members}
    assert evidences[1 if apart_s else 0] == (twin if apart_s else old)
    assert [span.rank for span in settled.spans] == ([7, -1] if apart_s else [])
    (problem,) = problems
    assert ("at the same time" in problem.what) is rivals
    assert ("later;" in problem.what) is not rivals
    assert "ranks 0, 1" in problem.what.lower()
