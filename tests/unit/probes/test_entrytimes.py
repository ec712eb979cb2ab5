"""Looking into the flight recorder: seldom, without importing anything, and never into the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_probes import entrytimes
from grpo_doctor_probes.entrytimes import EntryTimes

MODULE = "torch._C._distributed_c10d"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """A flight recorder; the arguments with which it was asked."""
    asked: list[tuple[bool, bool]] = []

    def dump(collectives: bool, only_active: bool) -> str:
        asked.append((collectives, only_active))
        return '{"entries":[]}'

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_dump_fr_trace_json=dump))
    return asked


def test_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPO_DOCTOR_FLIGHT", raising=False)
    assert EntryTimes.if_asked(str(tmp_path / "00000")) is None
    monkeypatch.setenv("GRPO_DOCTOR_FLIGHT", "often")
    assert EntryTimes.if_asked(str(tmp_path / "00000")) is None


def test_a_look_is_written_with_the_clocks(tmp_path: Path, looks: list[tuple[bool, bool]]) -> None:
    EntryTimes(str(tmp_path / "00003"), 0).after_step()
    (line,) = (tmp_path / "00003.flight.jsonl").read_text().splitlines()
    assert json.loads(line)["dump"] == {"entries": []}
    assert json.loads(line)["unix_ns"] > json.loads(line)["monotonic_ns"]
    assert looks == [(True, False)]


def test_the_next_look_waits_for_a_thousand_times_the_last(
    tmp_path: Path, looks: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr(entrytimes, "monotonic_ns", lambda: now_ns)
    entries = EntryTimes(str(tmp_path / "00000"), 10)

    def slow(collectives: bool, only_active: bool) -> str:
        nonlocal now_ns
        looks.append((collectives, only_active))
        now_ns += 30_000_000
        return "{}"

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(_dump_nccl_trace_json=slow))
    for at_s, expected in ((9, 0), (10, 1), (39, 1), (41, 2)):
        now_ns = at_s * 1_000_000_000
        entries.after_step()
        assert len(looks) == expected


def test_without_torch_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    EntryTimes(str(tmp_path / "00000"), 0).after_step()
    assert not list(tmp_path.iterdir())
