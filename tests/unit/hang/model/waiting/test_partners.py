"""Whom a send or receive names: a rank of the job, or one of a group."""

from __future__ import annotations

import json
from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting.waits import partner_of
from grpo_doctor_probes.evidence import CallArguments, Evidence, FlightDump
from tests.evidence import UNIX_NS, EvidenceBuilder, collective


def receiving(rank: int, *calls: dict[str, str], ranks: int = 4) -> EvidenceBuilder:
    """This rank is in a receive with these arguments, innermost call first."""
    build = EvidenceBuilder(ranks=ranks)
    build.elsewhere(rank, collective("recv"))
    build.arguments = [CallArguments(100 + rank, "recv", values) for values in calls]
    return build


def listing(evidence: Evidence, groups: dict[str, tuple[int, ...]]) -> Evidence:
    """The same with recordings that list the members of groups, as NCCL's do."""
    dumps = []
    for dump in evidence.dumps:
        document = json.loads(dump.data)
        document["pg_config"] = {
            name: {"name": name, "desc": "undefined" if int(name) else "default_pg",
                   "ranks": str(list(members))}
            for name, members in groups.items()
            if dump.rank in members
        }  # fmt: skip
        dumps.append(
            FlightDump("file", dump.rank, dump.pid, "d", UNIX_NS, json.dumps(document).encode())
        )
    return replace(evidence, dumps=tuple(dumps))


def partner(evidence: Evidence, rank: int) -> int | None:
    model = view.build(evidence)
    return partner_of(model, model.by_rank[rank])


def test_a_rank_of_the_job_is_what_it_says() -> None:
    assert partner(receiving(1, {"src": "3"}).build(), 1) == 3


def test_a_rank_of_a_group_is_no_rank_of_the_job() -> None:
    """gloo lists no members: rank 3 receives from the first of a group that nobody knows."""
    build = receiving(3, {"src": "None", "group_src": "0"})
    assert partner(build.build(), 3) is None
    assert 0 not in diagnose(build.build()).verdict.culprits


def test_a_rank_of_the_job_outside_of_a_rank_of_its_group_counts() -> None:
    build = receiving(3, {"src": "None", "group_src": "0"}, {"src": "2"})
    assert partner(build.build(), 3) == 2


def test_a_group_with_members_on_record_translates() -> None:
    evidence = receiving(3, {"group_src": "1"}).build()
    assert partner(listing(evidence, {"0": (0, 1, 2, 3)}), 3) == 1
    assert partner(listing(evidence, {"5": (2, 3)}), 3) == 3


def test_groups_that_differ_leave_it_open() -> None:
    evidence = receiving(3, {"group_src": "0"}).build()
    assert partner(listing(evidence, {"0": (0, 1, 2, 3), "1": (2, 3)}), 3) is None
    assert partner(listing(evidence, {"0": (0, 1, 2, 3), "1": (0, 3)}), 3) == 0


def test_a_number_beyond_the_group_is_nobody() -> None:
    evidence = receiving(3, {"group_src": "3"}).build()
    assert partner(listing(evidence, {"1": (2, 3)}), 3) is None


def test_the_arguments_of_another_rank_do_not_count() -> None:
    build = receiving(3)
    build.arguments = [CallArguments(101, "recv", {"src": "2"})]
    assert partner(build.build(), 3) is None


def test_a_number_that_is_no_rank_is_nobody() -> None:
    assert partner(receiving(1, {"src": "9" * 5000}).build(), 1) is None


def test_a_number_of_nine_digits_is_the_longest_that_may_be_a_rank() -> None:
    assert partner(receiving(1, {"src": "9" * 9}).build(), 1) == 999_999_999
    assert partner(receiving(1, {"src": "9" * 10}).build(), 1) is None


def test_the_number_after_the_last_of_a_group_is_nobody() -> None:
    evidence = receiving(3, {"group_src": "2"}).build()
    assert partner(listing(evidence, {"1": (2, 3)}), 3) is None
    assert partner(listing(evidence, {"1": (1, 2, 3)}), 3) == 3
