"""Writes what rules say again, in `edges.txt`: `python -m tests.unit.launches.rules.edges`.

Read its diff.
"""

from __future__ import annotations

from tests.unit.launches.rules.edges import RECORDED, recorded

RECORDED.write_text("\n\n".join(recorded()) + "\n", encoding="utf-8")
