"""The phases of the ranks over time, a lane for each."""

from __future__ import annotations

from collections import defaultdict

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.bands import bands_data
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.model import Timeline
from grpo_doctor_reports.packing import NumberPool


def lanes_chart(timeline: Timeline, pool: NumberPool) -> Chart | None:
    """Return the lanes, None where no rank's phases were recorded."""
    if not timeline.bands:
        return None
    data, note = bands_data(timeline, pool)
    taken: dict[str, float] = defaultdict(float)
    for band in timeline.bands:
        if "/" not in band.phase:
            taken[band.phase] += band.end_s - band.start_s
    whole = sum(taken.values()) or 1.0
    most = sorted(taken.items(), key=lambda item: -item[1])[:3]
    said = ", ".join(f"{phase} {formatting.share(seconds / whole)}" for phase, seconds in most)
    ranks = formatting.count(len(data["ranks"]), "rank")
    return Chart(
        data={"end": timeline.end_s, **data},
        summary=f"Recorded phases of {ranks} over {formatting.seconds(timeline.end_s)}: {said}.",
        note=note,
    )
