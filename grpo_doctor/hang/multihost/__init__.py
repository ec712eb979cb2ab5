"""The evidence of several hosts made one, and its verdict said with the hosts' names.

Process numbers repeat from host to host. In joined evidence each host has a space of its own, so
that nothing else in `hang` needs to know of hosts; `with_hosts` renders the real numbers.
"""

from __future__ import annotations

from grpo_doctor.hang.multihost.join import DifferentJobsError, joined
from grpo_doctor.hang.multihost.processes import with_hosts

__all__ = ["DifferentJobsError", "joined", "with_hosts"]
