"""How much wider than a bootstrap says an interval from few values is.

A draw from n values has less spread than a sample of n, and the percentiles of few know nothing of
how unsure their spread is: Student's t over the normal (Hesterberg 2015,
https://doi.org/10.1080/00031305.2015.1089789).
"""

from __future__ import annotations

from math import sqrt

# Quantiles of the normal distribution.
AT_95, AT_97_5 = 1.644854, 1.959964


def student(count: int, normal: float) -> float:
    """Student's t by the expansion of Cornish and Fisher, over the normal.

    Args:
        count: independent values that a spread is estimated from; at least 3. Of 3 it is within
            2% (two degrees of freedom).
        normal: the quantile of the normal distribution.
    """
    z, free = normal, count - 1
    quantile = (
        z
        + (z**3 + z) / (4 * free)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    )
    return quantile / z


def widened(count: int, normal: float) -> float:
    """Return what the distance of a bootstrap's percentile from its middle is to be multiplied by.

    Args:
        count: values, or blocks of values, that are drawn from; at least 3.
        normal: the percentile's quantile of the normal distribution.

    Returns:
        Student's t over the normal, with the factor that makes the spread unbiased.
    """
    return student(count, normal) * sqrt(count / (count - 1))
