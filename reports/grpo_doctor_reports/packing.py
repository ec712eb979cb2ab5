"""Put numbers into a page in few bytes, and anything at all into a script element safely."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

_SIGNIFICANT_DIGITS = 3
_MOST_DECIMALS = 12
_EXACT_STEPS = 100_000  # a time axis is exact to one part in this many: far below a pixel


class NumberPool:
    """Arrays of numbers, each as `[decimals, first, difference, difference, ...]` of integers.

    Charts refer to an array by its index. In the page they are gzipped JSON.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._arrays: list[list[int | None]] = []

    def add(self, values: Sequence[float | None]) -> int:
        """Store values to three digits of a typical (median) magnitude; return the index."""
        sizes = [abs(value) for value in values if value]
        return self._store(values, _decimals(median(sizes) if sizes else 1.0))

    def add_times(self, times_s: Sequence[float | None], end_s: float) -> int:
        """Store moments of a run that lasts `end_s`; return the index."""
        finest = math.ceil(math.log10(_EXACT_STEPS / end_s)) if end_s > 0 else 0
        return self._store(times_s, _clamped(finest))

    def add_integers(self, values: Sequence[int]) -> int:
        """Store whole numbers unrounded; return the index."""
        return self._store(values, 0)

    @property
    def arrays(self) -> Sequence[Sequence[int | None]]:
        """Return what is stored, as the script reads it."""
        return self._arrays

    def packed(self) -> str:
        """Return all arrays as `pack_text` packs them."""
        return pack_text(json.dumps(self._arrays, separators=(",", ":")))

    def _store(self, values: Iterable[float | None], decimals: int) -> int:
        array: list[int | None] = [decimals]
        before = 0
        for value in values:
            if value is None:
                array.append(None)
                continue
            scaled = round(value * 10.0**decimals)
            array.append(scaled - before)
            before = scaled
        self._arrays.append(array)
        return len(self._arrays) - 1


def pack_text(text: str) -> str:
    """Return base64 of the gzipped UTF-8 of `text`; the same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def script_json(value: Any) -> str:
    """Return JSON that no HTML parser can leave a script element through."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _decimals(magnitude: float) -> int:
    return _clamped(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(magnitude)))


def _clamped(decimals: int) -> int:
    return max(-_MOST_DECIMALS, min(_MOST_DECIMALS, decimals))
