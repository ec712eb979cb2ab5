from __future__ import annotations

from tests.unit.findings.example_runs import run

RUNS = {
    "it says between which phases": lambda: run(idle=1.5),
}
