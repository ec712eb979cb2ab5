from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.demo_reports import DEMOS
from tests.demo_reports.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_the_demo_writes_every_page_and_digest(tmp_path: Path) -> None:
    main(tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {f"{name}.{kind}" for name in DEMOS for kind in ("html", "txt")}
