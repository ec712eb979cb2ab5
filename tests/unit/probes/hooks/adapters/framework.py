"""Modules in a framework's shape, hooked as after their import, and what was recorded of them."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_doctor_probes.hooks.boot import adapter_of, apply
from tests.unit.probes.conftest import Recorded


def hooked(name: str, code: str, **variables: Any) -> Any:
    """Module `name` of this code, which may use what is given."""
    module = ModuleType(name)
    vars(module).update(variables)
    exec(textwrap.dedent(code), vars(module))
    apply(adapter_of(name.partition(".")[0]), module)
    return module


@dataclass(frozen=True)
class Job:
    """What a process of a job recorded."""

    folder: Path
    recording: Recorded

    @property
    def spans(self) -> list[str]:
        """Their names in the order of their start, outer ones first."""
        rows = [row for row in self.recording.rows if row.kind == "span"]
        return [row.name for row in sorted(rows, key=lambda row: (row.start_ns, row.depth))]

    @property
    def steps(self) -> list[int]:
        return [int(row.value) for row in self.recording.rows if row.kind == "step"]

    @property
    def errors(self) -> int:
        """Of ours, that the job did not see."""
        return self.recording.header.errors

    @property
    def facts(self) -> dict[str, Any]:
        """What it said of itself."""
        path = self.folder / "job.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    @property
    def metrics(self) -> list[tuple[int, dict[str, float]]]:
        path = self.folder / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(row["step"], row["metrics"]) for row in map(json.loads, lines)]
