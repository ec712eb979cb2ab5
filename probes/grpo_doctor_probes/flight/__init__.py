"""Flight recordings: from files, and out of the memory of a process.

Nothing here stops a thread or runs code in the job.
"""

from __future__ import annotations

from grpo_doctor_probes.flight.dump_locations import known_dump_files
from grpo_doctor_probes.flight.files import dump_files
from grpo_doctor_probes.flight.recorders import read_recorders

__all__ = ["dump_files", "known_dump_files", "read_recorders"]
