from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor_reports.packing import NumberPool, script_json


def unpack(pool: NumberPool, index: int) -> list[float | None]:
    """What the page's script does with an array of the pool."""
    arrays = json.loads(gzip.decompress(base64.b64decode(pool.packed())))
    decimals, *differences = arrays[index]
    values: list[float | None] = []
    total = 0
    for difference in differences:
        total += difference or 0
        values.append(None if difference is None else total / 10.0**decimals)
    return values


def test_numbers_come_back_to_three_digits_of_the_typical_one() -> None:
    pool = NumberPool()
    at = pool.add([41.234, None, 39.876, 0.04, 812.3])
    assert unpack(pool, at) == [41.2, None, 39.9, 0.0, 812.3]


def test_times_come_back_far_finer_than_a_pixel() -> None:
    pool = NumberPool()
    times = [0.0, 12.3456, 1_999.999]
    back = unpack(pool, pool.add_times(times, end_s=2_000.0))
    assert back == pytest.approx(times, abs=2_000 / 100_000)


@given(st.lists(st.floats(-1e15, 1e15) | st.none()))
def test_any_numbers_can_be_packed(values: list[float | None]) -> None:
    pool = NumberPool()
    back = unpack(pool, pool.add(values))
    assert [value is None for value in back] == [value is None for value in values]


def test_packing_is_reproducible() -> None:
    first, second = NumberPool(), NumberPool()
    first.add([1.0, 2.0])
    second.add([1.0, 2.0])
    assert first.packed() == second.packed()


@given(st.text())
def test_script_json_cannot_leave_its_element(text: str) -> None:
    packed = script_json({text: [text]})
    assert not set(packed) & set("<>&'\u2028\u2029")
    assert packed.isascii()
    assert json.loads(packed) == {text: [text]}
