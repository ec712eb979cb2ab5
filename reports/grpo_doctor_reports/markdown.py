"""Markdown of our own for a terminal."""

from __future__ import annotations

from rich.markdown import Markdown

from grpo_doctor_reports.console import as_text


def markdown_text(text: str, width: int, color: bool) -> str:
    """Headings, lists and paragraphs, wrapped to `width` columns; links keep their addresses."""
    drawn = Markdown(text, hyperlinks=False)
    return as_text(lambda _: [drawn], width=width, colors="standard" if color else None)
