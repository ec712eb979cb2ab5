"""On which of the job's hosts we are, and which others there are, by what its launcher said."""

from __future__ import annotations

from grpo_doctor_probes.placement.find import placement_of

__all__ = ["placement_of"]
