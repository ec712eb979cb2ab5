"""The mean step: one bar per phase, in order, work then wait, with p10-p90 whiskers."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import Chart, Figure, axis, axis_title, figure, plain, token
from grpo_doctor_reports.digest import Bar
from grpo_doctor_reports.palette import color_of

_BARS_SHOWN = 40
_ROW_PX = 30
_PATTERNS = {
    "transfer": {"shape": "|", "size": 6, "solidity": 0.6},
    "wait": {"shape": "/", "size": 5, "solidity": 0.4},
}


def waterfall_chart(bars: list[Bar]) -> Chart | None:
    """Return the chart of the mean step, None without one."""
    if not bars:
        return None
    end_s = max(bar.start_s + bar.seconds for bar in bars)
    longest = max(bars, key=lambda bar: bar.seconds)
    return Chart(
        figures={"waterfall": _figure(bars[:_BARS_SHOWN])},
        summary=(
            f"The mean step takes {formatting.seconds(end_s)}. Its longest phase is "
            f"{longest.phase}: {formatting.seconds(longest.seconds)}."
        ),
    )


def _figure(bars: list[Bar]) -> Figure:
    reach_s = max(bar.start_s + max(bar.seconds, bar.p90_s or 0.0) for bar in bars)
    return figure(
        [trace for row, bar in enumerate(bars) for trace in _row(row, bar)],
        60 + _ROW_PX * len(bars),
        barmode="overlay",
        margin={"l": 8, "r": 76, "t": 8, "b": 8},
        xaxis=axis(
            range=[0, reach_s or 1.0], title=axis_title("seconds of the mean step"),
            automargin=True,
        ),
        yaxis=axis(
            range=[len(bars) - 0.4, -0.6], showgrid=False, automargin=True,
            tickvals=list(range(len(bars))), ticktext=[f"{plain(bar.phase)} " for bar in bars],
            tickfont={"color": token("ink"), "size": 12},
        ),
    )  # fmt: skip


def _row(row: int, bar: Bar) -> list[Figure]:
    """Work, transfer, wait, then whiskers and label at the end."""
    kinds = {
        "work": bar.work_seconds,
        "transfer": bar.transfer_seconds,
        "wait": bar.wait_seconds + bar.idle_seconds,
    }
    traces, start_s = [], bar.start_s
    for kind, seconds in kinds.items():
        if seconds > 0 or kind == "work":
            traces.append(_bar(row, bar, kind, start_s, seconds))
        start_s += seconds
    p10_s, p90_s = (
        0.0 if end is None else max(0.0, sign * (bar.start_s + end - start_s))
        for end, sign in ((bar.p10_s, -1), (bar.p90_s, 1))
    )
    whiskers = {"type": "data", "symmetric": False, "color": token("ink"), "thickness": 1,
                "width": 3, "array": [p90_s], "arrayminus": [p10_s]}  # fmt: skip
    end = {"type": "scatter", "y": [row], "hoverinfo": "skip", "cliponaxis": False}
    return [
        *traces,
        {**end, "mode": "markers", "x": [start_s], "marker": {"size": 0.1, "opacity": 0},
         "error_x": whiskers},
        {**end, "mode": "text", "x": [start_s + p90_s],
         "text": [f"  {formatting.seconds(bar.seconds)}"], "textposition": "middle right",
         "textfont": {"color": token("ink"), "size": 12}},
    ]  # fmt: skip


def _bar(row: int, bar: Bar, kind: str, start_s: float, seconds: float) -> Figure:
    color = color_of(bar.phase)
    marker: Figure = {"color": color}
    if kind in _PATTERNS:
        marker["line"] = {"color": color, "width": 1}
        marker["pattern"] = {
            **_PATTERNS[kind], "fgcolor": color, "bgcolor": token("page"), "fillmode": "replace",
        }  # fmt: skip
    return {
        "type": "bar", "orientation": "h", "y": [row], "base": [start_s], "x": [seconds],
        "width": 0.62, "hovertext": ["<br>".join(map(plain, _hover(bar)))], "hoverinfo": "text",
        "textposition": "none", "marker": marker, "meta": {"phase": bar.phase},
    }  # fmt: skip


def _hover(bar: Bar) -> list[str]:
    lines = [
        f"{bar.phase}: {formatting.seconds(bar.seconds)}",
        f"work {formatting.seconds(bar.work_seconds)}, wait {formatting.seconds(bar.wait_seconds)}",
    ]
    rare = {"transfer": bar.transfer_seconds, "idle": bar.idle_seconds}
    if words := [f"{kind} {formatting.seconds(s)}" for kind, s in rare.items() if s > 0]:
        lines.append(", ".join(words))
    if bar.p10_s is not None and bar.p90_s is not None:
        lines.append(f"p10 {formatting.seconds(bar.p10_s)}, p90 {formatting.seconds(bar.p90_s)}")
    return lines
