from __future__ import annotations

import sys

import pytest

from grpo_doctor_reports import AssetError, assets
from grpo_doctor_reports.palette import PHASE_COLORS


def test_no_asset_can_close_the_element_it_is_in() -> None:
    assert "</" not in assets.style()
    assert "</script" not in assets.script().lower()
    assert "\r" not in assets.script()


def test_every_phase_has_its_class() -> None:
    for phase, color in PHASE_COLORS.items():
        assert f".phase-{phase}{{--c:{color};" in assets.style()


def test_a_missing_plotly_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assets.plotly_source.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(AssetError, match="pip install plotly"):
        assets.plotly_source()


def test_a_missing_asset_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_SCRIPTS", ("absent.js",))
    assets.script.cache_clear()
    with pytest.raises(AssetError, match=r"absent\.js is not installed"):
        assets.script()
    assets.script.cache_clear()
