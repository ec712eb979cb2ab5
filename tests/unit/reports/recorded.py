"""What is drawn of the demo documents, kept in text files beside the tests that compare them.

`python -m tests.unit.reports.recorded` writes the files again; look at what changed in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from grpo_doctor.compare import compare
from grpo_doctor_reports import render_html, render_text
from grpo_doctor_reports.charts.figure import Chart, Column
from grpo_doctor_reports.compare import comparison_page, comparison_text
from grpo_doctor_reports.hang.layout import draw
from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from grpo_doctor_reports.markdown import render_annotations, render_markdown
from grpo_doctor_reports.prometheus import render_prometheus
from tests.demo_reports import DEMOS
from tests.demo_verdicts import VISITS
from tests.unit.findings.example_runs import healthy, offloaded
from tests.unit.reports.charts.built import numbers
from tests.unit.reports.charts.cases import CASES
from tests.unit.reports.hang.graphs import GRAPHS
from tests.unit.reports.hang.said import said as hang_said
from tests.unit.reports.said import said

_WIDTH = 100
_CHARACTERS, _TRACES = 240, 8  # of a line, and of a figure, that are written out
_FIRST = {"boxes", "height", "meta", "x", "y", "z"}  # of these the line begins
_HERE = Path(__file__).parent
_UNREADABLE = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
_HASHES = re.compile(r"&#39;sha256-[^&]*&#39;|'sha256-[^']*'")


def _body(page: str) -> str:
    """A page without scripts, styles and what is made of them; an element begins a line."""
    page = _HASHES.sub("HASH", _UNREADABLE.sub("", page))
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", page).replace("<", "\n<")).strip()


def reports() -> Iterator[tuple[str, str]]:
    """Reports of runs: as text, two as pages."""
    for name in ("slow", "healthy", "killed", "crowded", "minimal"):
        document = DEMOS[name]()
        yield f"{name}, terminal", render_text(document, width=_WIDTH, color=False)
        yield f"{name}, Markdown", render_markdown(document)
        yield f"{name}, annotations", render_annotations(document)
        yield f"{name}, Prometheus", render_prometheus(document)
        if name in ("slow", "minimal"):
            yield f"{name}, page", _body(render_html(document))


def verdicts() -> Iterator[tuple[str, str]]:
    """What `attach` says of jobs."""
    for name, make in VISITS.items():
        yield f"{name}, terminal", hang_text(make(), _WIDTH, color=False)
        yield f"{name}, page", _body(hang_page(make()).decode())


def placements() -> Iterator[tuple[str, str]]:
    """Where the boxes and arrows of graphs are, and their words."""
    for name, graph in GRAPHS.items():
        drawing = draw(graph)
        assert drawing is not None
        lines = [f"{drawing.width:.1f} x {drawing.height:.1f} from {drawing.left:.1f}"]
        for box in drawing.boxes:
            words = [*box.label, *box.detail]
            lines.append(f"{box.x:.1f} {box.y:.1f} {box.width} x {box.height:.1f} {words}")
        for arrow in drawing.arrows:
            colour = " in the cycle" if arrow.in_cycle else ""
            lines.append(f"{arrow.path} from {arrow.left:.1f} to {arrow.right:.1f}{colour}")
            if (at := arrow.label) is not None:
                words = [(round(y, 1), text) for y, text in at.lines]
                lines.append(f"  {at.x:.1f} {at.y:.1f} {at.width:.1f} x {at.height:.1f} {words}")
        yield name, "\n".join(lines)


def charts() -> Iterator[tuple[str, str]]:
    """Charts at the edges of what they draw: words, facts, and each trace as far as a line goes."""
    for kind, cases in CASES.items():
        for name, make in cases.items():
            chart = make()
            yield f"{kind}, {name}", "\n".join(_chart(chart)) if chart else "no chart"


def _chart(chart: Chart) -> Iterator[str]:
    yield from (chart.summary, chart.note, _line(chart.facts))
    for name, figure in chart.figures.items():
        traces = figure["data"]
        yield f"{name}: {_line(figure['layout'])}"
        yield from map(_line, traces[:_TRACES])
        if len(traces) > _TRACES:
            yield f"{len(traces) - _TRACES} more: {_line(traces[_TRACES:])}"


def _line(part: object) -> str:
    """JSON of a part, numbers as the page gets them; of a long one its beginning and a hash."""
    text = msgspec.json.encode(_plain(part))
    shown = text[:_CHARACTERS].decode("utf-8", "ignore")
    return shown if len(text) <= _CHARACTERS else f"{shown} {sha256(text).hexdigest()[:12]}"


def _plain(part: object) -> object:
    if isinstance(part, Column):
        return numbers(part)
    if isinstance(part, Mapping):
        order = sorted(part, key=lambda key: (key not in _FIRST, key))
        return {key: _plain(part[key]) for key in order}
    return [_plain(item) for item in part] if isinstance(part, list | tuple) else part


def comparisons() -> Iterator[tuple[str, str]]:
    """A run beside another: better, worse and the same."""
    pairs = {
        "better": (offloaded().build(), healthy()),
        "worse": (healthy(), offloaded().build()),
        "the same": (healthy(), healthy()),
    }
    for name, (before, after) in pairs.items():
        document: dict[str, Any] = msgspec.to_builtins(compare(before, after))
        yield f"{name}, terminal", comparison_text(document, _WIDTH, color=False)
        yield f"{name}, page", _body(comparison_page(document).decode())


RECORDED: Final[Mapping[str, Callable[[], Iterator[tuple[str, str]]]]] = {
    "drawn.txt": reports, "charts/drawn.txt": charts, "hang/drawn.txt": verdicts,
    "hang/placed.txt": placements, "hang/said.txt": hang_said, "said.txt": said,
    "compare/drawn.txt": comparisons,
}  # fmt: skip


def check(file: str) -> None:
    """Holds what is drawn now to a recorded file.

    Raises:
        AssertionError: they differ.
    """
    recorded = (_HERE / file).read_text("utf-8").split("\n==== ")
    for now, before in zip(_texts(file), recorded, strict=True):
        difference = "\n".join(
            unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=1)
        )
        assert now == before, f"{difference}\npython -m tests.unit.reports.recorded accepts it"


def _texts(file: str) -> list[str]:
    # Escaped, since hostile documents hold what Unicode has to begin a line or to hide one.
    return [
        f"{name}\n{text}\n".encode("unicode_escape").decode().replace("\\n", "\n")
        for name, text in RECORDED[file]()
    ]


if __name__ == "__main__":
    for file in RECORDED:
        (_HERE / file).write_text("\n==== ".join(_texts(file)), encoding="utf-8")
