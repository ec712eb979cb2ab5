"""Kept evidence judged again: `python -m tests.frameworks --replay DIR`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor.hang.collection.bundle import read
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict

_TRUTH = ".truth.json"


@dataclass(frozen=True)
class Judged:
    """One bundle's verdict held against its truth. `wrong` names what does not fit."""

    name: str
    verdict: Verdict
    wrong: tuple[str, ...]

    def text(self) -> str:
        verdict = self.verdict
        mark = f"wrong in {', '.join(self.wrong)}" if self.wrong else "right"
        return f"{mark:24} {self.name:48} {verdict.state:8}{verdict.cause:24} {verdict.summary}"


def judged(folder: Path) -> Iterator[Judged]:
    """Every bundle that has its truth beside it."""
    for path in sorted(folder.glob(f"*{_TRUTH}")):
        name = path.name.removesuffix(_TRUTH)
        truth = json.loads(path.read_text(encoding="utf-8"))
        verdict = diagnose(read(path.with_name(name))).verdict
        yield Judged(name, verdict, tuple(_wrong(verdict, truth)))


def _wrong(verdict: Verdict, truth: dict[str, Any]) -> Iterator[str]:
    if verdict.state not in truth["states"]:
        yield "state"
    if not truth["classes"]:  # a job that lives: nobody is to blame for long
        return
    if verdict.cause not in truth["classes"]:
        yield "class"
    if truth["culprits"] is not None and list(verdict.culprits) != truth["culprits"]:
        yield "culprits"
    for part in ("line", "actor"):
        if truth.get(part, "") not in verdict.summary:
            yield part
