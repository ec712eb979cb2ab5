from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from grpo_doctor_reports import ReportError
from grpo_doctor_reports.markdown import render_annotations, render_markdown
from tests.demo_reports import DEMOS


def test_strange_names_draw_nothing_of_their_own() -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    kinds = set()
    for token in parser.parse(render_markdown(DEMOS["hostile"]())):
        kinds |= {token.type, *(child.type for child in token.children or ())}
    assert not {kind for kind in kinds if kind.startswith(("html", "link", "image"))}
    assert {"heading_open", "table_open", "strong_open"} <= kinds


def test_annotations_escape_what_ends_a_command() -> None:
    for line in render_annotations(DEMOS["hostile"]()).splitlines():
        assert line.startswith("::")
        title = line.split("::")[1].partition("title=")[2]
        assert "," not in title


def test_a_document_of_another_schema_is_refused() -> None:
    with pytest.raises(ReportError):
        render_markdown({"schema": 99})
