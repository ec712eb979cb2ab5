"""The comparison as one HTML file that opens offline."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.compare import drawing, words
from grpo_doctor_reports.compare.document import read_comparison
from grpo_doctor_reports.jinja import still_page, template_environment
from grpo_doctor_reports.page_words import phase_class
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.severity import severity_class


def comparison_page(document: AnyDocument) -> bytes:
    """Return the comparison as one self-contained page (UTF-8, about 50 kB, no requests).

    Args:
        document: what `compare --json` prints; every string in it is treated as hostile.

    Raises:
        DocumentError: the document has another schema, or a part of the wrong type.
        AssetError: a file of the page is not installed.
    """
    comparison = read_comparison(document)
    return still_page(
        _environment(),
        "compare.html.j2",
        assets.compare_style(),
        comparison=comparison,
        steps=drawing.steps_drawing(comparison),
        bars=drawing.phase_bars(comparison),
        size=(drawing.WIDTH, drawing.HEIGHT),
    )


@cache
def _environment() -> Environment:
    environment = template_environment()
    environment.filters.update(
        compact=formatting.compact,
        number=formatting.number,
        phase_class=phase_class,
        seconds=formatting.seconds,
        severity_class=severity_class,
        signed=formatting.signed_percent,
    )
    environment.globals.update(words=words)
    return environment
