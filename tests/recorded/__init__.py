"""Real runs of the bundled trainer, recorded, without paying for its imports each time."""

from __future__ import annotations

from tests.recorded.workshop import TrainingFailedError, Workshop, workshop

__all__ = ["TrainingFailedError", "Workshop", "workshop"]
