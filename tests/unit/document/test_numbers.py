"""Numbers fit for JSON: rounded, and nothing that is not finite."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from grpo_doctor.document import numbers


def test_what_is_not_finite_is_none() -> None:
    assert [numbers.number(v) for v in (None, math.nan, math.inf, 1.23456789)] == [
        None, None, None, 1.234568,
    ]  # fmt: skip
    assert numbers.significant(math.inf) is None
    assert numbers.significant(123456.0) == 123500.0
    assert numbers.significant_column(np.array([1.23456789, math.nan])) == [1.2346, None]
    assert numbers.column([1.23456789, math.nan]) == [1.234568, None]
    assert numbers.seconds(1_500_000_400) == 1.5


def test_settings_of_any_type_become_json() -> None:
    odd = {1: (math.nan, True, None), "path": Path("/a"), "deep": [{"x": 0.1 + 0.2}]}
    assert numbers.finite(odd) == {"1": [None, True, None], "path": "/a", "deep": [{"x": 0.3}]}
    assert numbers.finite(None) is None
