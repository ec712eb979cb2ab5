"""The mean step: one bar per phase from its mean start, work then wait, with p10-p90 whiskers."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart, rounded
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.schema.views import WaterfallEntry

_BARS_SHOWN = 40


def waterfall_chart(bars: list[WaterfallEntry]) -> Chart | None:
    """Return the chart of the mean step, None without one."""
    if not bars:
        return None
    end_s = max(bar.start_s + bar.seconds for bar in bars)
    longest = max(bars, key=lambda bar: bar.seconds)
    return Chart(
        data={"rows": [_row(bar) for bar in bars[:_BARS_SHOWN]]},
        summary=(
            f"The mean step ends after {formatting.seconds(end_s)}; its longest phase is "
            f"{longest.phase} with {formatting.seconds(longest.seconds)}, starting at "
            f"{formatting.seconds(longest.start_s)}."
        ),
    )


def _row(bar: WaterfallEntry) -> dict[str, object]:
    return {
        "phase": bar.phase,
        "color": color_of(bar.phase),
        "start": rounded(bar.start_s),
        "work": rounded(bar.work_seconds),
        "transfer": rounded(bar.transfer_seconds),
        "wait": rounded(bar.wait_seconds + bar.idle_seconds),
        "p10": None if bar.p10_s is None else rounded(bar.p10_s),
        "p90": None if bar.p90_s is None else rounded(bar.p90_s),
        "label": formatting.seconds(bar.seconds),
        "hover": _hover(bar),
    }


def _hover(bar: WaterfallEntry) -> list[str]:
    lines = [
        f"{bar.phase}: {formatting.seconds(bar.seconds)}",
        f"work {formatting.seconds(bar.work_seconds)}, wait {formatting.seconds(bar.wait_seconds)}",
        *_rare_kinds(bar),
        f"starts at {formatting.seconds(bar.start_s)}",
    ]
    if bar.p10_s is not None and bar.p90_s is not None:
        lines.append(f"p10 {formatting.seconds(bar.p10_s)}, p90 {formatting.seconds(bar.p90_s)}")
    return lines


def _rare_kinds(bar: WaterfallEntry) -> list[str]:
    kinds = [("transfer", bar.transfer_seconds), ("idle", bar.idle_seconds)]
    words = ", ".join(f"{kind} {formatting.seconds(s)}" for kind, s in kinds if s > 0)
    return [words] if words else []
