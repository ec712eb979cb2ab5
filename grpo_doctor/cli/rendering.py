"""The document through the renderers, with their errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from grpo_doctor.cli.output import color_wanted, terminal_width
from grpo_doctor.errors import OutputError
from grpo_doctor_reports import ReportError, compare, console, render_html, render_text
from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from grpo_doctor_reports.markdown import render_annotations, render_markdown
from grpo_doctor_reports.prometheus import render_prometheus
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.treatment import treatment_markdown as _treatment_markdown
from grpo_doctor_reports.treatment import treatment_page as _treatment_page

_RENDERERS = {
    "markdown": render_markdown, "github": render_annotations, "prometheus": render_prometheus,
}  # fmt: skip


@contextmanager
def _errors_as_ours() -> Iterator[None]:
    try:
        yield
    except ReportError as problem:
        raise OutputError(str(problem)) from problem


@_errors_as_ours()
def page(document: AnyDocument) -> bytes:
    """Return the HTML report. Raises OutputError if the page's parts are not installed."""
    return render_html(document).encode()


@_errors_as_ours()
def digest(document: AnyDocument, stream: TextIO | None) -> str:
    """Return the terminal digest, colored if `stream` is a terminal that shows colors."""
    return render_text(document, width=terminal_width(), color=color_wanted(stream))


@_errors_as_ours()
def text_in(form: str, document: AnyDocument) -> str:
    """The report as `markdown` for a comment, `github` annotations or a `prometheus` textfile."""
    return _RENDERERS[form](document)


def markdown(text: str, stream: TextIO | None) -> str:
    """Markdown for a terminal, colored if `stream` shows colors."""
    return console.markdown_text(text, terminal_width(), color_wanted(stream))


# Two runs, and the verdict on a job, as pages. OutputError if a page's parts are not installed.
comparison_page = _errors_as_ours()(compare.comparison_page)
verdict_page = _errors_as_ours()(hang_page)
treatment_page = _errors_as_ours()(_treatment_page)
treatment_markdown = _errors_as_ours()(_treatment_markdown)


@_errors_as_ours()
def comparison_text(document: AnyDocument, stream: TextIO | None) -> str:
    """Return two runs for a terminal, colored if `stream` shows colors."""
    return compare.comparison_text(document, terminal_width(), color_wanted(stream))


@_errors_as_ours()
def verdict_text(document: AnyDocument, stream: TextIO | None) -> str:
    """Return the verdict for a terminal, colored if `stream` shows colors."""
    return hang_text(document, terminal_width(), color_wanted(stream))
