# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports import digest
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.key_numbers import key_numbers
from grpo_doctor_reports.model import Report
from tests.demo_reports import DEMOS


def read(**parts: Any) -> Report:
    return read_document({"schema": 1, **parts})


def test_the_bar_never_overflows_and_ends_with_unattributed() -> None:
    parts = digest.step_bar(
        read(
            summary={
                "step_time_s": 10.0,
                "unattributed_seconds": 1.0,
                "phases": {
                    "train": {"seconds": 8.0, "wait_seconds": 2.0},
                    "rollout": {"seconds": 4},
                },
            }
        )
    )
    assert [part.phase for part in parts] == ["rollout", "train", "unattributed"]
    assert sum(part.fraction for part in parts) == pytest.approx(1.0)
    assert (parts[1].work_s, parts[1].wait_s) == (6.0, 2.0)


def test_stalls_group_ranks_by_their_innermost_open_span() -> None:
    def rank(number: int, *spans: tuple[str, float]) -> dict[str, Any]:
        return {"rank": number, "open": [{"name": n, "open_s": s} for n, s in spans]}

    report = read(
        run={
            "ranks": [
                rank(0, ("train", 700.0), ("train/all_reduce", 690.0)),
                rank(1, ("train", 700.0), ("train/all_reduce", 690.4)),
                rank(2, ("rollout/generate", 703.0)),
                rank(3),
            ]
        }
    )
    assert digest.stalls(report) == [
        "Rank 2 was in rollout/generate for 11 min 43 s when the recording ended.",
        "Ranks 0–1 were in train/all_reduce for 11 min 30 s when the recording ended.",
    ]


def test_everything_lost_is_said() -> None:
    loss = {"dropped_events": 1_204, "missing_ranks": [3, 4], "truncated": True, "notes": ["n"]}
    assert digest.losses(read(run={"loss": loss})) == [
        "Ranks 3–4 left no recording.",
        "1,204 events dropped while recording.",
        "The recording is cut off; what came after the cut is unknown.",
        "n",
    ]
    assert digest.losses(read()) == []


def test_the_fix_shown_first_is_the_first_with_a_prediction() -> None:
    fixes = [{"spelling": "a"}, {"spelling": "b", "predicted": {"mid": -3.0}}]
    finding = read(findings=[{"fixes": fixes}]).findings[0]
    fix = digest.main_fix(finding)
    assert fix is not None
    assert fix.spelling == "b"
    assert digest.gain_sentence(fix.predicted) == "step time −3%"
    assert digest.main_fix(read(findings=[{}]).findings[0]) is None


def test_a_fix_without_spelling_shows_its_knob() -> None:
    fix = {"knob": "offload.optimizer", "from": True, "to": False}
    read_fix = read(findings=[{"fixes": [fix]}]).findings[0].fixes[0]
    assert digest.fix_line(read_fix) == "offload.optimizer: true → false"


def test_key_numbers_of_a_killed_run() -> None:
    shown = {item.label: item for item in key_numbers(read_document(DEMOS["killed"]()))}
    assert shown["Exit"].value == "killed"
    assert shown["Exit"].detail == "SIGKILL after 12 min 14 s"
    assert "Step time" not in shown  # there is none, so nothing is shown


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"spelling": "--x 1"}, digest.Pasted("", "--x 1")),
        (
            {"spelling": "for `serve`: --x 1", "where": "for `serve`", "typed": "--x 1"},
            digest.Pasted("for `serve`", "--x 1"),
        ),
        # A document from before `where` was said.
        ({"spelling": "for `serve`: --x 1"}, digest.Pasted("", "for `serve`: --x 1")),
        ({"spelling": "two\nlines: -x"}, digest.Pasted("", "two\nlines: -x")),
    ],
)
def test_what_is_copied_is_what_is_typed(entry: dict[str, str], expected: digest.Pasted) -> None:
    fix = read(findings=[{"fixes": [entry]}]).findings[0].fixes[0]
    assert digest.pasted(fix) == expected
