"""A recording in a notebook: its spans as a table, its charts as plotly figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.document import build_document
from grpo_doctor.errors import UsageError
from grpo_doctor.importers.load import load as load_trace
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.charts import charts_of
from grpo_doctor_reports.charts.figure import Figure, notebook_figure
from grpo_doctor_reports.schema.report import read_report

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


def load(path: str | Path) -> Recording:
    """Open a run directory, a trace.json, or a file of another program.

    Raises:
        TraceError: nothing there, nothing readable, or an unknown format.
    """
    return Recording(load_trace(path))


@dataclass(frozen=True)
class Recording:
    """A recording, and what a notebook shows of it."""

    trace: Trace

    def frame(self) -> pd.DataFrame:
        """Return the spans as `Trace.frame` does: one row each, times in nanoseconds."""
        return self.trace.frame()

    @property
    def figures(self) -> list[str]:
        """Return the names that `figure` takes."""
        return list(self._specs)

    def figure(self, name: str) -> go.Figure:
        """Return a chart of the report, such as `steps`, `strips/GPUs` or `curves/reward`.

        Raises:
            UsageError: there is no such chart, or the recording has no data for it.
        """
        if name not in self._specs:
            raise UsageError(f"no figure {name!r}; this recording has: {', '.join(self.figures)}")
        return notebook_figure(self._specs[name])

    @cached_property
    def _specs(self) -> dict[str, Figure]:
        report = read_report(build_document(self.trace))
        return {
            chart_name if part == chart_name else f"{chart_name}/{part}": spec
            for chart_name, chart in charts_of(report).items()
            for part, spec in chart.figures.items()
        }
