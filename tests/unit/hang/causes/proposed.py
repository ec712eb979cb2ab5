"""What one cause proposes of a built job, before the others are held against it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from grpo_doctor.hang.causes import Candidate, Case
from grpo_doctor.hang.causes.candidate import Cause
from grpo_doctor.hang.decision.state import stall_of
from grpo_doctor.hang.model.matching.model import Matching
from grpo_doctor.hang.model.view import build as scene_of
from grpo_doctor.hang.model.waiting import waits
from grpo_doctor_probes.evidence import Evidence
from tests.evidence import EvidenceBuilder


def case_of(job: EvidenceBuilder | Evidence) -> Case:
    """The job as causes look at it."""
    view = scene_of(job if isinstance(job, Evidence) else job.build())
    return Case(view, waits.build(view), stall_of(view).suspects)


def proposed(cause: Cause, job: EvidenceBuilder | Evidence) -> tuple[Candidate, ...]:
    """All labels of this cause."""
    return tuple(cause(case_of(job)))


def only(cause: Cause, job: EvidenceBuilder | Evidence) -> Candidate:
    """The label of this cause, which is the only one."""
    (label,) = cause(case_of(job))
    return label


def with_view(case: Case, **fields: Any) -> Case:
    """The same job, of which something else is known."""
    return replace(case, view=replace(case.view, **fields))


def with_matching(case: Case, **fields: Any) -> Case:
    """The same job with other recordings: what they show is given, all else is empty."""
    return with_view(case, matching=Matching(**fields))


def of_nccl(evidence: Evidence) -> Evidence:
    """The same as NCCL's recorder would have it."""
    return replace(
        evidence, dumps=tuple(replace(dump, data=_of_nccl(dump.data)) for dump in evidence.dumps)
    )


def _of_nccl(data: bytes) -> bytes:
    document: dict[str, Any] = json.loads(data)
    for entry in document["entries"]:
        entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
        entry["state"] = "completed" if entry["retired"] else "scheduled"
    return json.dumps(document).encode()
