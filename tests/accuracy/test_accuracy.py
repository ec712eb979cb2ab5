"""One pair of the bench, and the bench's arithmetic; all pairs: `python -m tests.accuracy`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest

from tests.accuracy import bench, table
from tests.accuracy.fixes import FIXES
from tests.recorded import Workshop
from tests.recorded.forks import ROOT, shared

PAIR = bench.Pair("a fix", 1, 1.0, 0.8, -30.0, -18.0, -5.0, 0.01)


def test_an_error_is_of_the_median_and_relative_to_the_time_after() -> None:
    pairs = [replace(PAIR, seed=seed, after_s=after) for seed, after in enumerate((0.7, 0.8, 0.9))]
    (row,) = table.rows(pairs)
    assert row.measured == pytest.approx(-20)
    assert row.error == pytest.approx(2)
    assert row.relative == pytest.approx(100 * 2 / 80)
    assert (row.sign_right, row.inside) == (True, 3)
    assert table.missed(pairs) == []


def test_an_interval_is_held_to_the_median_and_to_its_own_pair() -> None:
    pairs = [replace(PAIR, seed=seed, after_s=after) for seed, after in enumerate((0.6, 0.8, 1.1))]
    (row,) = table.rows(pairs)
    assert (row.inside, row.inside_own) == (3, 1)
    assert "own change inside | 33%" in table.section(pairs, "python -m tests.accuracy", 1.0)


def test_a_change_that_is_none_has_no_sign_to_miss() -> None:
    assert table.rows([replace(PAIR, mid=-1.2, after_s=1.005)])[0].sign_right
    assert not table.rows([replace(PAIR, mid=-5.0, after_s=1.005)])[0].sign_right


def test_a_wrong_sign_an_interval_that_misses_and_a_bad_replay_are_named() -> None:
    pairs = [replace(PAIR, after_s=1.2, replay_off=0.04)]
    words = [text.partition(" ")[0] for text in table.missed(pairs)]
    assert words == ["median", "sign", "0%", "an"]


def test_a_fix_without_a_prediction_is_listed_and_not_scored() -> None:
    unknown = replace(PAIR, fix="other", low=nan, mid=nan, high=nan, reason="nobody knows")
    assert table.totals([PAIR, unknown])["predicted"] == 1
    assert "none: nobody knows" in table.section([PAIR, unknown], "python -m tests.accuracy", 1.0)


def test_there_are_at_least_a_dozen_fixes_with_names_of_their_own() -> None:
    assert len({fix.name for fix in FIXES}) == len(FIXES) >= 12


@pytest.mark.slow
@pytest.mark.heavy
def test_a_real_run_replays_within_three_percent_and_its_fix_is_predicted(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    inputs = tmp_path / "inputs"
    make = [sys.executable, "-m", "tests.accuracy.inputs", str(inputs)]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True)
    fix = next(candidate for candidate in FIXES if candidate.name == "both offloads off")
    pair = bench.run_pair(Workshop(shared()), fix, inputs, tmp_path / "runs", 1)
    assert pair.reason == ""
    assert pair.replay_off < table.MOST_REPLAY / 100
    assert pair.low <= pair.mid < 0
