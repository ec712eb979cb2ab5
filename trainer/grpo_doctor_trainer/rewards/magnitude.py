"""How large the numbers in a formula get: sympy would compute `10**999999999` to its last digit."""

from __future__ import annotations

import math
from typing import Any

_MOST_DIGITS = 5000.0
_DEEPEST = 60
_MOST_PARTS = 2000


def too_large(expression: Any) -> bool:
    """Whether evaluating a sympy expression would take more digits than an answer can need."""
    try:
        return _digits(expression, [_MOST_PARTS], 0) > _MOST_DIGITS
    except (TypeError, ValueError, AttributeError, OverflowError):
        return True  # nothing we know: not worth a hang


def _digits(part: Any, budget: list[int], depth: int) -> float:
    """An upper bound of the decimal digits of any number in an expression."""
    budget[0] -= 1
    if depth > _DEEPEST or budget[0] < 0:
        return math.inf
    if getattr(part, "is_Number", False):
        return _digits_of_number(part)
    return _digits_of_parts(
        part, [_digits(one, budget, depth + 1) for one in getattr(part, "args", ())]
    )


def _digits_of_parts(part: Any, inner: list[float]) -> float:
    kind = type(part).__name__
    if not inner:
        return 1.0
    if kind == "Pow" and len(inner) == 2:
        return inner[0] * max(1.0, _value(part.args[1], inner[1]))
    if kind in {"factorial", "factorial2", "gamma", "exp", "subfactorial", "fibonacci", "binomial"}:
        largest = max(inner)
        value = 10.0**largest if largest < 300 else math.inf
        return value * max(1.0, largest)
    if kind == "Mul":
        return sum(inner)
    return max(inner) + (1.0 if kind == "Add" else 0.0)


def _value(exponent: Any, digits: float) -> float:
    if getattr(exponent, "is_Number", False) and digits < 300:
        return abs(float(exponent))
    return 10.0**digits if digits < 300 else math.inf


def _digits_of_number(part: Any) -> float:
    for whole in ("p", "q"):
        if hasattr(part, whole):
            return max(1.0, *(int(getattr(part, n)).bit_length() * 0.302 for n in ("p", "q")))
    exponent = math.log10(2) * int(getattr(part, "_mpf_", (0, 0, 0, 0))[2])
    return max(1.0, abs(exponent) - 16)
