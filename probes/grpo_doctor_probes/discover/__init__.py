"""Finds the training jobs of this host from outside: their processes, ranks and roles."""

from __future__ import annotations

from grpo_doctor_probes.discover.explain import NoJobError, NoPermissionError
from grpo_doctor_probes.discover.find import find_jobs
from grpo_doctor_probes.discover.permission import ptrace_remedy

__all__ = ["NoJobError", "NoPermissionError", "find_jobs", "ptrace_remedy"]
