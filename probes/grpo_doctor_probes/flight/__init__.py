"""Flight recordings: from files, pipes, debug servers, and by one call into a process.

`inject` is the only part that touches the job; the caller decides whether the job is stuck.
"""

from __future__ import annotations

from grpo_doctor_probes.flight.dump_locations import known_dump_files
from grpo_doctor_probes.flight.dump_requests import ask_pipes, ask_servers
from grpo_doctor_probes.flight.files import dump_files
from grpo_doctor_probes.flight.injection import inject, inject_all
from grpo_doctor_probes.flight.nccl_ras import ras

__all__ = [
    "ask_pipes",
    "ask_servers",
    "dump_files",
    "inject",
    "inject_all",
    "known_dump_files",
    "ras",
]
