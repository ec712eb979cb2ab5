"""A plugin of ms-swift: it adds a reward by name. It is read, never run."""

from __future__ import annotations

orms: dict[str, object] = {}
orms["mine"] = len
