"""Flight-recorder dumps of any version, backend and format, read without trusting them."""

from __future__ import annotations

from grpo_doctor.hang.dumps.model import (
    DumpProblem,
    Entry,
    GroupSeen,
    Recording,
    Recordings,
    Status,
)
from grpo_doctor.hang.dumps.read import read

__all__ = ["DumpProblem", "Entry", "GroupSeen", "Recording", "Recordings", "Status", "read"]
