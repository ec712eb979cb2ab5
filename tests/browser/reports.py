"""The demo reports on disk, each written when a test first opens it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_reports import render_html
from tests.demo_reports import DEMOS


@dataclass(frozen=True)
class Reports:
    """A folder: `reports / "slow.html"` is the page of the demo document `slow`."""

    folder: Path

    def __truediv__(self, name: str) -> Path:
        page = self.folder / name
        if not page.exists():
            page.write_text(render_html(DEMOS[page.stem]()), encoding="utf-8")
        return page
