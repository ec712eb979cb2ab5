"""What the watchdog left is found again by the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_doctor.document import facts
from grpo_doctor.document.facts import hang_entries
from grpo_doctor_reports.schema.report import HangEntry


def keep(folder: Path, number: int, verdict: str) -> None:
    bundle = folder / "hangs" / str(number)
    bundle.mkdir(parents=True)
    (bundle / "hang.html").write_text("<!doctype html>")
    (bundle / "verdict.json").write_text(verdict)


def test_each_verdict_is_linked_with_its_words(tmp_path: Path) -> None:
    said = {"state": "stuck", "summary": "Rank 1 sleeps."}
    verdict = {"schema": 1, "verdict": said, "taken_unix_ns": 7}
    keep(tmp_path, 0, json.dumps(verdict))
    assert hang_entries(tmp_path) == [
        HangEntry(
            page="hangs/0/hang.html", headline="Rank 1 sleeps.", state="stuck", taken_unix_ns=7
        )
    ]


def test_a_damaged_verdict_is_still_linked(tmp_path: Path) -> None:
    keep(tmp_path, 0, "{")
    (entry,) = hang_entries(tmp_path)
    assert (entry.page, entry.headline) == ("hangs/0/hang.html", "")


def test_a_trace_alone_has_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{}")
    assert hang_entries(path) == []


def test_next_steps_are_three_that_need_no_process(tmp_path: Path) -> None:
    texts = ["kill rank 1", "", "look at /proc/7/stack", "a", "stop pid 7", "b", "c", "d"]
    fixes = [{"text": text} for text in texts]
    keep(tmp_path, 0, json.dumps({"schema": 1, "verdict": {"fixes": fixes}}))
    (entry,) = hang_entries(tmp_path)
    assert entry.next_steps == ["a", "b", "c"]


def test_a_verdict_is_read_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"schema": 1, "verdict": {"summary": "Rank 1 sleeps."}})
    keep(tmp_path, 0, text)
    for limit, headline in ((len(text), "Rank 1 sleeps."), (len(text) - 1, "")):
        monkeypatch.setattr(facts, "_LARGEST_BYTES", limit)
        assert hang_entries(tmp_path)[0].headline == headline
