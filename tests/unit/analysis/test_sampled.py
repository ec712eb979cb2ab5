from __future__ import annotations

import numpy as np
import pytest

from grpo_doctor.analysis.sampled import value_at
from grpo_doctor.trace.model import Series


def series(times_ns: list[int], values: list[float]) -> Series:
    return Series(
        "gpu.util", "%", "gpu", "host", np.array(times_ns, dtype=np.int64), np.array(values)
    )


@pytest.mark.parametrize(
    ("moment_ns", "value"), [(9, None), (10, 1.0), (19, 1.0), (20, 2.0), (10_000, 2.0)]
)
def test_a_value_holds_from_its_sample_to_the_next(moment_ns: int, value: float | None) -> None:
    (sampled,) = value_at(series([10, 20], [1.0, 2.0]), np.array([moment_ns], dtype=np.int64))
    assert np.isnan(sampled) if value is None else sampled == value


def test_without_samples_nothing_is_known() -> None:
    assert np.isnan(value_at(series([], []), np.array([1, 2], dtype=np.int64))).all()
