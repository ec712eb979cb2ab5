"""Real runs of the bundled trainer, recorded, without paying for its imports each time."""

from __future__ import annotations

from tests.recorded.workshop import Failed, Workshop, workshop

__all__ = ["Failed", "Workshop", "workshop"]
