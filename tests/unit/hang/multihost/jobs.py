"""Jobs on several hosts, and the verdict on them."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import joined, with_hosts
from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Evidence
from tests.evidence import EvidenceBuilder


def judged(evidences: list[Evidence]) -> Diagnosis:
    evidence = joined(evidences)
    return with_hosts(diagnose(evidence), evidence.job)


def stopped(rank: int = 5, ranks: int = 8) -> Evidence:
    build = EvidenceBuilder(ranks=ranks)
    build.rank(rank).state = "T"
    return build.build()


def skipped(rank: int = 6, ranks: int = 8) -> Evidence:
    build = EvidenceBuilder(ranks=ranks)
    build.calls(rank, "broadcast")
    return build.build()
