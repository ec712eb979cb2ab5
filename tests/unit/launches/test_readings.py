"""All that is read and judged of launches of many forms, as it was when somebody last looked."""

from __future__ import annotations

from pathlib import Path

from tests.unit.launches.readings import RECORDED, rendered


def test_launches_are_read_as_recorded(tmp_path: Path) -> None:
    now = rendered(tmp_path).split("\n\n")
    for paragraph, recorded in zip(now, RECORDED.read_text("utf-8").split("\n\n"), strict=True):
        assert paragraph == recorded, "python -m tests.unit.launches.readings accepts it"
