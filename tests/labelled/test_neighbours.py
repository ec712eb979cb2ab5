"""How the words of other tools become ids of ours; the tools themselves are not needed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.labelled import neighbours


def meaning(detector: str, summary: str = "", **metrics: float) -> frozenset[str]:
    entry: dict[str, Any] = {"detector": detector, "summary": summary, "metrics": metrics}
    return neighbours._meaning(entry)


def test_detectors_of_two_things_are_read_by_their_numbers() -> None:
    assert meaning("length_pathology", truncation_rate=0.2) == {"GD051"}
    assert meaning("length_pathology", "Responses grew 2.0x", truncation_rate=0.0) == {"GD056"}
    assert meaning("clip_saturation", clipfrac=0.3, clip_asymmetry=5.0) == {"GD053", "GD054"}
    assert meaning("gradient_pathology", n_nonfinite=3) == {"GD064"}
    assert meaning("gradient_pathology", zero_grad_step_frac=0.5) == {"GD059"}
    assert meaning("advantage_collapse") == {"GD050", "GD059"}


def test_what_we_have_no_rule_for_keeps_its_name() -> None:
    assert meaning("plateau", "Reward stopped improving") == {"rldoctor:plateau"}
    assert meaning("plateau", "Reward has been *declining*") == {"GD063"}
    assert meaning("reward_hacking") == {"rldoctor:reward_hacking"}


def test_rows_are_what_trl_would_have_logged(tmp_path: Path) -> None:
    lines = [
        '{"step":1,"metrics":{"reward":"nan","rewards/a/mean":0.5,"eval":1}}',
        '{"step":2,"metrics":{"reward":0.25,"rewards/a/mean":0.5}}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    first, second = neighbours.rows_of(tmp_path)
    assert math.isnan(first["reward"])
    assert "eval" in first
    assert "eval" not in second
    assert neighbours._rlprobe_row(first) == {"step": 1, "reward_components": {"a": 0.5}}
    assert neighbours._rlprobe_row(second)["reward_mean"] == 0.25


def test_a_tool_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "HOME", tmp_path)
    with pytest.raises(neighbours.NeighbourError, match="--install"):
        neighbours.rldoctor([{"step": 1, "reward": 0.5}], tmp_path)
