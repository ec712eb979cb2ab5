from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.look.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    yield one
    one.end()
