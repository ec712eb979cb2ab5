from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.demo_reports import DEMOS
from tests.demo_reports.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_writes_a_page_and_a_digest_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two: other tests draw every page and every digest.
    few = {name: DEMOS[name] for name in ("minimal", "killed")}
    monkeypatch.setattr("tests.demo_reports.__main__.DEMOS", few)
    main(tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"{name}.{kind}" for name in few for kind in ("html", "txt")}
