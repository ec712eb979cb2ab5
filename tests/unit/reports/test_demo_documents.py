"""The made-up documents that tests of reports share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.demo_reports import DEMOS
from tests.demo_verdicts import VISITS


def _spoil(value: Any) -> None:
    """Changes everything that can be changed, at every depth."""
    if isinstance(value, dict):
        for nested in value.values():
            _spoil(nested)
        value["spoiled"] = True
    elif isinstance(value, list):
        for nested in value:
            _spoil(nested)
        value.append("spoiled")


@pytest.mark.parametrize(
    "name", [name for name in {**DEMOS, **VISITS} if name not in ("long", "wide")]
)
def test_a_test_that_changes_its_document_changes_nobody_elses(name: str) -> None:
    make = {**DEMOS, **VISITS}[name]
    _spoil(make())
    assert "spoiled" not in str(make())
