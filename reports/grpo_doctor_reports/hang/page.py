"""The verdict as one HTML file that opens offline."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.hang import words
from grpo_doctor_reports.hang.graph import make_graph
from grpo_doctor_reports.hang.layout import draw
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.attach import read_verdict


def hang_page(document: AnyDocument) -> bytes:
    """Return the verdict as one self-contained page (UTF-8, about 50 kB, no external requests).

    Args:
        document: what `attach --json` prints; every string in it is treated as hostile.
    """
    visit = read_verdict(document)
    drawing = draw(make_graph(visit))
    style = assets.hang_style()
    return assets.own_page(_environment(), "hang.html.j2", style, visit=visit, drawing=drawing)


@cache
def _environment() -> Environment:
    environment = assets.template_environment()
    environment.filters.update(
        count=formatting.count,
        ranges=words.ranges,
        share=formatting.share,
        utc=formatting.utc,
    )
    environment.globals.update(words=words)
    return environment
