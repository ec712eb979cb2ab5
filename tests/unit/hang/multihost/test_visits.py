"""Which of several looks are of one moment, of one host, of one job."""

from __future__ import annotations

from dataclasses import replace

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
    kept, problems = visits.of_one_moment([earlier, second])
    assert kept == (earlier, second)
    assert len(problems) == int(old)


def test_hosts_of_one_name_are_told_apart_by_a_number() -> None:
    first, second = hosts()
    named = [
        replace(e, job=replace(e.job, host=name)) for e in (first, second) for name in ("a", "")
    ]
    assert visits.host_names(named) == ("a", "unnamed host", "a (2)", "unnamed host (2)")


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


def test_ranks_are_those_of_rank_processes_with_a_number() -> None:
    job = hosts()[1].job
    helper = replace(job.members[0], pid=900, role="helper", rank=0)
    unknown = replace(job.members[0], pid=901, rank=None)
    assert visits.ranks_of(replace(job, members=(*job.members, helper, unknown))) == {2, 3}
