"""The first screen of ten runs: what is wrong, and what to type; as written down beforehand."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from grpo_doctor.document import ReportDocument
from grpo_doctor_reports import digest, render_text
from grpo_doctor_reports.digest import gpus_words, key_numbers
from grpo_doctor_reports.formatting import seconds
from grpo_doctor_reports.schema.report import read_report
from grpo_doctor_reports.schema.views import StepBuckets
from tests.first_screens import SCREENS

_WORDS = 24  # what is read in five seconds
_DOCUMENTS: dict[str, ReportDocument] = {}


def document_of(name: str) -> ReportDocument:
    """Each run analysed once."""
    if name not in _DOCUMENTS:
        _DOCUMENTS[name] = SCREENS[name].document()
    return _DOCUMENTS[name]


def test_there_are_ten() -> None:
    assert len(SCREENS) == 10


@pytest.mark.parametrize("name", SCREENS)
def test_the_line_at_the_top_is_the_right_answer(name: str) -> None:
    verdict = document_of(name).summary.verdict
    assert verdict == SCREENS[name].verdict
    assert len(verdict.split()) <= _WORDS


@pytest.mark.parametrize("name", SCREENS)
def test_the_first_card_says_what_to_type(name: str) -> None:
    screen, report = SCREENS[name], read_report(document_of(name))
    hang = digest.deadly_hang(report)
    if hang is not None:
        typed, step = "", next(iter(hang.next_steps), "")
    elif not report.findings:
        typed, step = "", ""
    else:
        fix, advice = digest.main_fix(report.findings[0]), digest.main_step(report.findings[0])
        typed = digest.fix_line(fix) if fix else ""
        step = advice.text if advice and not fix else ""
    assert typed == screen.typed
    assert step.startswith(screen.next_step)
    assert bool(step) == bool(screen.next_step)


@pytest.mark.parametrize("name", SCREENS)
def test_page_and_terminal_say_the_same_numbers(name: str) -> None:
    document = document_of(name)
    summary, text = document.summary, render_text(document, width=120, color=False)
    numbers = {item.label: item.value for item in key_numbers(read_report(document))}
    assert summary.verdict in re.sub(r"\s+", " ", text)
    for label, value in numbers.items():
        assert f"{label} {value}" in re.sub(r"\s+", " ", text)
    if summary.step_time_s is not None:
        assert numbers["Step time"] == seconds(summary.step_time_s)
        assert numbers["Steps"] == str(summary.steps)
        assert document.whatif.step_time_s == summary.step_time_s
        assert document.whatif.steps == summary.steps
        phases_s = sum(phase.seconds for phase in summary.phases.values())
        rest_s = summary.unattributed.seconds if summary.unattributed else 0.0
        assert phases_s + rest_s == pytest.approx(summary.step_time_s)


def test_a_machine_without_gpus_shows_no_gpu_numbers() -> None:
    document = document_of("nothing wrong")
    summary = structs.replace(document.summary, gpu_busy_pct=None, tokens_per_s_per_gpu=None)
    run = structs.replace(document.run, gpus=[])
    report = read_report(structs.replace(document, run=run, summary=summary))
    assert gpus_words(report.run) == "8 ranks without a GPU"
    labels = [item.label for item in key_numbers(report)]
    assert labels == ["Step time", "Tokens/s", "Steps", "Ranks", "Exit"]


def test_rows_of_a_log_that_each_stand_for_steps_are_no_steps() -> None:
    document = document_of("nothing wrong")
    rows = StepBuckets(first=[5, 10, 15], last=[5, 10, 15], steps=[1, 1, 1])
    views = structs.replace(document.views, step_buckets=rows)
    run = structs.replace(document.run, hosts=[])
    shown = key_numbers(structs.replace(document, run=run, views=views))
    assert [item.detail for item in shown if item.label == "Rows"] == ["of the log, up to step 15"]
    assert "Steps" not in [item.label for item in shown]
