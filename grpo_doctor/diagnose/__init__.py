"""What pasted text shows: logs, tracebacks, NCCL's watchdog, stack dumps.

`answer` is pure; text of a stranger is data, whatever it says.
"""

from __future__ import annotations

from grpo_doctor.diagnose.engine import answer

__all__ = ["answer"]
