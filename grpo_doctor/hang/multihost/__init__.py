"""The evidence of several hosts made one, and its verdict said with the hosts' names.

Process numbers repeat from host to host. In joined evidence each host has a space of its own, so
that nothing else in `hang` needs to know of hosts; `spoken` puts the real numbers back into words.
"""

from __future__ import annotations

from grpo_doctor.hang.multihost.join import joined
from grpo_doctor.hang.multihost.same_job import DifferentJobsError
from grpo_doctor.hang.multihost.spoken import spoken

__all__ = ["DifferentJobsError", "joined", "spoken"]
