# ruff: noqa: RUF001 (the minus sign is what a report prints)
from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from grpo_doctor_reports import ReportError
from grpo_doctor_reports.markdown import render_annotations, render_markdown
from tests.demo_reports import DEMOS


def test_markdown_has_the_verdict_the_steps_and_each_finding_with_its_fix() -> None:
    text = render_markdown(DEMOS["slow"]())
    for words in (
        "**A third of each step is rollout",
        "| rollout | 15.1 s | 31% |",
        "**GD003 Rank 5 generates 45% longer",
        "Fix: `--offload_optimizer false` (step time −12% (−13% to −8.1%))",
    ):
        assert words in text, words


def test_strange_names_draw_nothing_of_their_own() -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    kinds = set()
    for token in parser.parse(render_markdown(DEMOS["hostile"]())):
        kinds |= {token.type, *(child.type for child in token.children or ())}
    assert not {kind for kind in kinds if kind.startswith(("html", "link", "image"))}
    assert {"heading_open", "table_open", "strong_open"} <= kinds


def test_annotations_have_one_line_per_finding_at_its_level() -> None:
    document = DEMOS["slow"]()
    lines = render_annotations(document).splitlines()
    assert len(lines) == len(document["findings"]) + 1
    levels = {"high": "error", "medium": "warning"}
    for line, finding in zip(lines, document["findings"], strict=False):
        assert line.startswith(f"::{levels.get(finding['severity'], 'notice')} title=")


def test_annotations_escape_what_ends_a_command() -> None:
    for line in render_annotations(DEMOS["hostile"]()).splitlines():
        assert line.startswith("::")
        title = line.split("::")[1].partition("title=")[2]
        assert "," not in title


def test_a_document_of_another_schema_is_refused() -> None:
    with pytest.raises(ReportError):
        render_markdown({"schema": 99})
