"""What was seen of a job from outside: plain records, made by `discover`, `look` and `flight`.

Nothing here judges. `grpo_doctor.hang` reasons about an `Evidence`, which is also what a bundle
holds, so that a verdict can be explained again on another machine.
"""

from __future__ import annotations

from grpo_doctor_probes.evidence.case import Cost, Evidence, Problem
from grpo_doctor_probes.evidence.job import FOUND_FRAMEWORKS, Job, Member, Placement, Role
from grpo_doctor_probes.evidence.looks import (
    Await,
    Blocked,
    CallArguments,
    Frame,
    Locals,
    Look,
    Position,
    ProcessLook,
    PythonThread,
    Stack,
    Thread,
)
from grpo_doctor_probes.evidence.surroundings import (
    Disk,
    EngineLook,
    FlightDump,
    GpuHolder,
    GpuLook,
    HostFacts,
    Limits,
    LogTail,
    OpenSpanSeen,
    RasAnswer,
    RayFact,
)

__all__ = [
    "FOUND_FRAMEWORKS",
    "Await",
    "Blocked",
    "CallArguments",
    "Cost",
    "Disk",
    "EngineLook",
    "Evidence",
    "FlightDump",
    "Frame",
    "GpuHolder",
    "GpuLook",
    "HostFacts",
    "Job",
    "Limits",
    "Locals",
    "LogTail",
    "Look",
    "Member",
    "OpenSpanSeen",
    "Placement",
    "Position",
    "Problem",
    "ProcessLook",
    "PythonThread",
    "RasAnswer",
    "RayFact",
    "Role",
    "Stack",
    "Thread",
]
