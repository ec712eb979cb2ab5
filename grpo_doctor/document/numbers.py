"""Numbers as the document holds them: finite or null, without digits that mean nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from grpo_doctor_reports.schema.part import Numbers

SECONDS_DIGITS = 6  # microseconds: spans are recorded that exactly
SHARE_DIGITS = 5
PERCENT_DIGITS = 2


def number(value: float | None, digits: int = SECONDS_DIGITS) -> float | None:
    """Rounded; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits)


def seconds(nanoseconds: float) -> float:
    """Return nanoseconds as seconds."""
    return round(float(nanoseconds) / 1e9, SECONDS_DIGITS)


def significant(value: float | None, digits: int = 4) -> float | None:
    """Rounded to significant digits, for values of unknown size; None for what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def finite(value: object) -> object:
    """Return a value of unknown type made fit for JSON: containers walked, odd objects as text."""
    if isinstance(value, float):
        return number(value, 9)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value)


def column(values: NDArray[np.float64] | Iterable[float], digits: int = SECONDS_DIGITS) -> Numbers:
    """Return a list of numbers, None where one is not finite."""
    rounded = np.round(np.asarray(values, dtype=np.float64), digits)
    return [v if math.isfinite(v) else None for v in rounded.tolist()]


def significant_column(values: NDArray[np.float64], digits: int = 5) -> Numbers:
    """Return a list of numbers of unknown size, to significant digits."""
    return [significant(v, digits) for v in values.tolist()]
